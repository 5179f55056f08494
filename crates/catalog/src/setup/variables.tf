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

variable "push_audiences" {
  description = "The audience of the tokens that pushes to a service carry; without one, the address of the service. Give each its own: a token for one service is then refused by the others."
  type        = map(string)
  default     = {}
}

variable "regions" {
  description = "The regions in which messages of a residency may lie, by residency."
  type        = map(list(string))
  default     = {}
}
