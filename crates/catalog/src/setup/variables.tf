variable "project" {
  description = "The project that the topics belong to."
  type        = string
}

variable "max_delivery_attempts" {
  description = "Deliveries after which Pub/Sub gives a message up. A backstop: Chapar gives up earlier, by its own count."
  type        = number
  default     = 100
}

variable "push_endpoints" {
  description = "The address of each service that is pushed to, such as https://inventory.example.org."
  type        = map(string)
  default     = {}
}

variable "push_audience" {
  description = "The audience of the tokens that pushes carry; without one, the address that is pushed to."
  type        = string
  default     = null
}

variable "regions" {
  description = "The regions in which messages of a residency may lie, by residency."
  type        = map(list(string))
  default     = {}
}
