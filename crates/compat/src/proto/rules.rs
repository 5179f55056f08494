//! The breaking rules by the names that `buf breaking` gives them.

use super::Category;

macro_rules! rules {
    ($($name:ident = $id:literal: $($category:ident)+, $doc:literal;)+) => {
        /// A breaking rule. `buf`'s rules about services, custom features and C++ or Java string handling
        /// are left out: no event depends on them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Rule {
            $(#[doc = $doc] $name,)+
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Rule] = &[$(Rule::$name),+];

            /// The name that `buf` has for it.
            pub fn id(self) -> &'static str {
                match self { $(Rule::$name => $id,)+ }
            }

            /// Whether a category asks for it.
            pub fn is_in(self, category: Category) -> bool {
                match self { $(Rule::$name => [$(Category::$category),+].contains(&category),)+ }
            }
        }
    };
}

/// What buf has in these categories and this crate does not.
pub const LEFT_OUT: &[&str] = &[
    "SERVICE_NO_DELETE",
    "RPC_NO_DELETE",
    "RPC_SAME_CLIENT_STREAMING",
    "RPC_SAME_IDEMPOTENCY_LEVEL",
    "RPC_SAME_REQUEST_TYPE",
    "RPC_SAME_RESPONSE_TYPE",
    "RPC_SAME_SERVER_STREAMING",
    "FIELD_SAME_CPP_STRING_TYPE",
    "FIELD_SAME_JAVA_UTF8_VALIDATION",
    "FILE_SAME_CC_ENABLE_ARENAS",
    "FILE_SAME_CC_GENERIC_SERVICES",
    "FILE_SAME_JAVA_GENERIC_SERVICES",
    "FILE_SAME_PY_GENERIC_SERVICES",
];

rules! {
    EnumNoDelete = "ENUM_NO_DELETE": File, "An enum is gone from its file.";
    FileNoDelete = "FILE_NO_DELETE": File, "A file is gone.";
    MessageNoDelete = "MESSAGE_NO_DELETE": File, "A message is gone from its file.";
    ExtensionNoDelete = "EXTENSION_NO_DELETE": File, "An extension is gone from its file.";
    EnumSameType = "ENUM_SAME_TYPE": File, "An enum changed between open and closed.";
    FieldSameCardinality = "FIELD_SAME_CARDINALITY": File, "A field changed its label, its presence or its being a map.";
    FieldSameJstype = "FIELD_SAME_JSTYPE": File, "A 64-bit field changed its option jstype.";
    FieldSameUtf8Validation = "FIELD_SAME_UTF8_VALIDATION": File, "A string field changed whether it is checked to be UTF-8.";
    FileSameCsharpNamespace = "FILE_SAME_CSHARP_NAMESPACE": File, "csharp_namespace changed.";
    FileSameGoPackage = "FILE_SAME_GO_PACKAGE": File, "go_package changed.";
    FileSameJavaMultipleFiles = "FILE_SAME_JAVA_MULTIPLE_FILES": File, "java_multiple_files changed.";
    FileSameJavaOuterClassname = "FILE_SAME_JAVA_OUTER_CLASSNAME": File, "java_outer_classname changed.";
    FileSameJavaPackage = "FILE_SAME_JAVA_PACKAGE": File, "java_package changed.";
    FileSameObjcClassPrefix = "FILE_SAME_OBJC_CLASS_PREFIX": File, "objc_class_prefix changed.";
    FileSameOptimizeFor = "FILE_SAME_OPTIMIZE_FOR": File, "optimize_for changed.";
    FileSamePhpClassPrefix = "FILE_SAME_PHP_CLASS_PREFIX": File, "php_class_prefix changed.";
    FileSamePhpMetadataNamespace = "FILE_SAME_PHP_METADATA_NAMESPACE": File, "php_metadata_namespace changed.";
    FileSamePhpNamespace = "FILE_SAME_PHP_NAMESPACE": File, "php_namespace changed.";
    FileSameRubyPackage = "FILE_SAME_RUBY_PACKAGE": File, "ruby_package changed.";
    FileSameSwiftPrefix = "FILE_SAME_SWIFT_PREFIX": File, "swift_prefix changed.";
    EnumValueNoDelete = "ENUM_VALUE_NO_DELETE": File, "An enum value is gone.";
    ExtensionMessageNoDelete = "EXTENSION_MESSAGE_NO_DELETE": File, "An extension range is gone.";
    FieldNoDelete = "FIELD_NO_DELETE": File, "A field is gone.";
    FieldSameType = "FIELD_SAME_TYPE": File, "A field changed its type.";
    FileSameSyntax = "FILE_SAME_SYNTAX": File, "A file changed its syntax.";
    MessageNoRemoveStandardDescriptorAccessor = "MESSAGE_NO_REMOVE_STANDARD_DESCRIPTOR_ACCESSOR": File, "A message lost its standard descriptor accessor.";
    OneofNoDelete = "ONEOF_NO_DELETE": File, "A oneof is gone.";
    EnumSameJsonFormat = "ENUM_SAME_JSON_FORMAT": File WireJson, "An enum lost its full support of JSON.";
    EnumValueSameName = "ENUM_VALUE_SAME_NAME": File WireJson, "An enum value changed its name.";
    FieldSameJsonName = "FIELD_SAME_JSON_NAME": File WireJson, "A field changed its name in JSON.";
    FieldSameName = "FIELD_SAME_NAME": File WireJson, "A field changed its name.";
    MessageSameJsonFormat = "MESSAGE_SAME_JSON_FORMAT": File WireJson, "A message lost its full support of JSON.";
    FieldSameDefault = "FIELD_SAME_DEFAULT": File WireJson Wire, "A field changed its default.";
    FieldSameOneof = "FIELD_SAME_ONEOF": File WireJson Wire, "A field moved into, out of or between oneofs.";
    FileSamePackage = "FILE_SAME_PACKAGE": File WireJson Wire, "A file changed its package.";
    MessageSameRequiredFields = "MESSAGE_SAME_REQUIRED_FIELDS": File WireJson Wire, "A required field came or went.";
    ReservedEnumNoDelete = "RESERVED_ENUM_NO_DELETE": File WireJson Wire, "A reservation of an enum is gone.";
    ReservedMessageNoDelete = "RESERVED_MESSAGE_NO_DELETE": File WireJson Wire, "A reservation of a message is gone.";
    EnumValueNoDeleteUnlessNameReserved = "ENUM_VALUE_NO_DELETE_UNLESS_NAME_RESERVED": WireJson, "An enum value is gone and its name is free.";
    FieldNoDeleteUnlessNameReserved = "FIELD_NO_DELETE_UNLESS_NAME_RESERVED": WireJson, "A field is gone and its name is free.";
    FieldWireJsonCompatibleCardinality = "FIELD_WIRE_JSON_COMPATIBLE_CARDINALITY": WireJson, "A field changed its cardinality, on the wire or in JSON.";
    FieldWireJsonCompatibleType = "FIELD_WIRE_JSON_COMPATIBLE_TYPE": WireJson, "A field changed its type, on the wire or in JSON.";
    EnumValueNoDeleteUnlessNumberReserved = "ENUM_VALUE_NO_DELETE_UNLESS_NUMBER_RESERVED": WireJson Wire, "An enum value is gone and its number is free.";
    FieldNoDeleteUnlessNumberReserved = "FIELD_NO_DELETE_UNLESS_NUMBER_RESERVED": WireJson Wire, "A field is gone and its number is free.";
    FieldWireCompatibleCardinality = "FIELD_WIRE_COMPATIBLE_CARDINALITY": Wire, "A field changed its cardinality on the wire.";
    FieldWireCompatibleType = "FIELD_WIRE_COMPATIBLE_TYPE": Wire, "A field changed its type on the wire.";
}
