//! Which types there are: one per row of PostgreSQL's `pg_type`, as far as clients meet them.

use std::fmt;

/// What a type is for, as overload resolution sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    /// `B`: truth values.
    Boolean,
    /// `S`: texts.
    String,
    /// `N`: numbers.
    Numeric,
    /// `D`: dates, times and timestamps.
    DateTime,
    /// `T`: intervals.
    Timespan,
    /// `I`: addresses of networks.
    Network,
    /// `A`: arrays.
    Array,
    /// `U`: types that resolution knows nothing of.
    User,
    /// `X`: literals whose type is still to be found.
    Unknown,
    /// `Z`: for catalogs only.
    Internal,
    /// `P`: pseudo-types, which no column can have.
    Pseudo,
}

impl Category {
    /// The letter of `pg_type.typcategory`.
    pub const fn letter(self) -> char {
        match self {
            Self::Boolean => 'B',
            Self::String => 'S',
            Self::Numeric => 'N',
            Self::DateTime => 'D',
            Self::Timespan => 'T',
            Self::Network => 'I',
            Self::Array => 'A',
            Self::User => 'U',
            Self::Unknown => 'X',
            Self::Internal => 'Z',
            Self::Pseudo => 'P',
        }
    }
}

/// What PostgreSQL's catalog says about a type.
struct Row {
    oid: u32,
    name: &'static str,
    sql_name: &'static str,
    length: i16,
    category: Category,
    preferred: bool,
    element: Option<Kind>,
    array: Option<Kind>,
}

macro_rules! kinds {
    ($(#[doc = $doc:literal] $kind:ident = $oid:literal, $name:literal, $sql_name:literal, $length:literal,
        $category:ident, $preferred:literal $(, element $element:ident)? $(, array $array:ident)?;)+) => {
        /// A type without its modifier.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Kind {
            $(#[doc = $doc] $kind,)+
        }

        const ROWS: &[Row] = &[$(Row {
            oid: $oid,
            name: $name,
            sql_name: $sql_name,
            length: $length,
            category: Category::$category,
            preferred: $preferred,
            element: kinds!(@optional $($element)?),
            array: kinds!(@optional $($array)?),
        }),+];

        impl Kind {
            /// All kinds, in the order of this list.
            pub const ALL: &[Self] = &[$(Self::$kind),+];

            /// The type with this object id.
            pub const fn from_oid(oid: u32) -> Option<Self> {
                match oid {
                    $($oid => Some(Self::$kind),)+
                    _ => None,
                }
            }

            /// The type that the catalog calls `name`.
            pub fn from_catalog_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$kind),)+
                    _ => None,
                }
            }
        }
    };
    (@optional) => { None };
    (@optional $kind:ident) => { Some(Kind::$kind) };
}

kinds! {
    /// `boolean`.
    Bool = 16, "bool", "boolean", 1, Boolean, true, array BoolArray;
    /// `bytea`.
    Bytea = 17, "bytea", "bytea", -1, User, false, array ByteaArray;
    /// `"char"`: one byte, for catalogs.
    SingleChar = 18, "char", "\"char\"", 1, Internal, false, array SingleCharArray;
    /// `name`: at most 63 bytes, for catalogs.
    Name = 19, "name", "name", 64, String, false, array NameArray;
    /// `bigint`.
    Int8 = 20, "int8", "bigint", 8, Numeric, false, array Int8Array;
    /// `smallint`.
    Int2 = 21, "int2", "smallint", 2, Numeric, false, array Int2Array;
    /// `int2vector`: an array with a text form of its own, for catalogs.
    Int2Vector = 22, "int2vector", "int2vector", -1, Array, false, element Int2, array Int2VectorArray;
    /// `integer`.
    Int4 = 23, "int4", "integer", 4, Numeric, false, array Int4Array;
    /// `regproc`: the object id of a function.
    Regproc = 24, "regproc", "regproc", 4, Numeric, false, array RegprocArray;
    /// `text`.
    Text = 25, "text", "text", -1, String, true, array TextArray;
    /// `oid`: an object id.
    Oid = 26, "oid", "oid", 4, Numeric, true, array OidArray;
    /// `xid`: a transaction id, for catalogs.
    Xid = 28, "xid", "xid", 4, User, false, array XidArray;
    /// `oidvector`: an array with a text form of its own, for catalogs.
    OidVector = 30, "oidvector", "oidvector", -1, Array, false, element Oid, array OidVectorArray;
    /// `json`: kept as written.
    Json = 114, "json", "json", -1, User, false, array JsonArray;
    /// `cidr`: the address of a network.
    Cidr = 650, "cidr", "cidr", -1, Network, false, array CidrArray;
    /// `real`.
    Float4 = 700, "float4", "real", 4, Numeric, false, array Float4Array;
    /// `double precision`.
    Float8 = 701, "float8", "double precision", 8, Numeric, true, array Float8Array;
    /// The type of a quoted literal before its use tells more.
    Unknown = 705, "unknown", "unknown", -2, Unknown, false;
    /// `macaddr8`: the address of a network card, of eight bytes.
    Macaddr8 = 774, "macaddr8", "macaddr8", 8, User, false, array Macaddr8Array;
    /// `macaddr`: the address of a network card.
    Macaddr = 829, "macaddr", "macaddr", 6, User, false, array MacaddrArray;
    /// `inet`: the address of a host, or of a network.
    Inet = 869, "inet", "inet", -1, Network, true, array InetArray;
    /// `character(n)`: padded with blanks, which do not count in comparisons.
    Char = 1042, "bpchar", "character", -1, String, false, array CharArray;
    /// `character varying`.
    Varchar = 1043, "varchar", "character varying", -1, String, false, array VarcharArray;
    /// `date`.
    Date = 1082, "date", "date", 4, DateTime, false, array DateArray;
    /// `time without time zone`.
    Time = 1083, "time", "time without time zone", 8, DateTime, false, array TimeArray;
    /// `timestamp without time zone`.
    Timestamp = 1114, "timestamp", "timestamp without time zone", 8, DateTime, false, array TimestampArray;
    /// `timestamp with time zone`.
    Timestamptz = 1184, "timestamptz", "timestamp with time zone", 8, DateTime, true, array TimestamptzArray;
    /// `interval`.
    Interval = 1186, "interval", "interval", 16, Timespan, true, array IntervalArray;
    /// `time with time zone`.
    Timetz = 1266, "timetz", "time with time zone", 12, DateTime, false, array TimetzArray;
    /// `numeric`.
    Numeric = 1700, "numeric", "numeric", -1, Numeric, false, array NumericArray;
    /// `regprocedure`: the object id of a function, printed with its arguments.
    Regprocedure = 2202, "regprocedure", "regprocedure", 4, Numeric, false, array RegprocedureArray;
    /// `regoper`: the object id of an operator.
    Regoper = 2203, "regoper", "regoper", 4, Numeric, false, array RegoperArray;
    /// `regoperator`: the object id of an operator, printed with its operands.
    Regoperator = 2204, "regoperator", "regoperator", 4, Numeric, false, array RegoperatorArray;
    /// `regclass`: the object id of a table, index, view or sequence.
    Regclass = 2205, "regclass", "regclass", 4, Numeric, false, array RegclassArray;
    /// `regtype`: the object id of a type.
    Regtype = 2206, "regtype", "regtype", 4, Numeric, false, array RegtypeArray;
    /// Any type, in signatures of functions only.
    Any = 2276, "any", "\"any\"", 4, Pseudo, false;
    /// An array of [`Kind::AnyElement`], in signatures of functions only.
    AnyArray = 2277, "anyarray", "anyarray", -1, Pseudo, false;
    /// The result of functions without one.
    Void = 2278, "void", "void", 4, Pseudo, false;
    /// One type throughout a call, in signatures of functions only.
    AnyElement = 2283, "anyelement", "anyelement", 4, Pseudo, false;
    /// Any type but arrays, in signatures of functions only.
    AnyNonArray = 2776, "anynonarray", "anynonarray", 4, Pseudo, false;
    /// `uuid`.
    Uuid = 2950, "uuid", "uuid", 16, User, false, array UuidArray;
    /// `pg_lsn`: a place in the log.
    PgLsn = 3220, "pg_lsn", "pg_lsn", 8, User, false, array PgLsnArray;
    /// `jsonb`.
    Jsonb = 3802, "jsonb", "jsonb", -1, User, false, array JsonbArray;
    /// `regcollation`: the object id of a collation.
    Regcollation = 4191, "regcollation", "regcollation", 4, Numeric, false, array RegcollationArray;
    /// `regnamespace`: the object id of a schema.
    Regnamespace = 4089, "regnamespace", "regnamespace", 4, Numeric, false, array RegnamespaceArray;
    /// `regrole`: the object id of a role.
    Regrole = 4096, "regrole", "regrole", 4, Numeric, false, array RegroleArray;
    /// An array of `cidr`.
    CidrArray = 651, "_cidr", "cidr[]", -1, Array, false, element Cidr;
    /// An array of `macaddr8`.
    Macaddr8Array = 775, "_macaddr8", "macaddr8[]", -1, Array, false, element Macaddr8;
    /// An array of `macaddr`.
    MacaddrArray = 1040, "_macaddr", "macaddr[]", -1, Array, false, element Macaddr;
    /// An array of `inet`.
    InetArray = 1041, "_inet", "inet[]", -1, Array, false, element Inet;
    /// An array of `pg_lsn`.
    PgLsnArray = 3221, "_pg_lsn", "pg_lsn[]", -1, Array, false, element PgLsn;
    /// An array of `timetz`.
    TimetzArray = 1270, "_timetz", "time with time zone[]", -1, Array, false, element Timetz;
    /// An array of `bool`.
    BoolArray = 1000, "_bool", "boolean[]", -1, Array, false, element Bool;
    /// An array of `bytea`.
    ByteaArray = 1001, "_bytea", "bytea[]", -1, Array, false, element Bytea;
    /// An array of `char`.
    SingleCharArray = 1002, "_char", "\"char\"[]", -1, Array, false, element SingleChar;
    /// An array of `name`.
    NameArray = 1003, "_name", "name[]", -1, Array, false, element Name;
    /// An array of `int8`.
    Int8Array = 1016, "_int8", "bigint[]", -1, Array, false, element Int8;
    /// An array of `int2`.
    Int2Array = 1005, "_int2", "smallint[]", -1, Array, false, element Int2;
    /// An array of `int2vector`.
    Int2VectorArray = 1006, "_int2vector", "int2vector[]", -1, Array, false, element Int2Vector;
    /// An array of `int4`.
    Int4Array = 1007, "_int4", "integer[]", -1, Array, false, element Int4;
    /// An array of `regproc`.
    RegprocArray = 1008, "_regproc", "regproc[]", -1, Array, false, element Regproc;
    /// An array of `text`.
    TextArray = 1009, "_text", "text[]", -1, Array, false, element Text;
    /// An array of `oid`.
    OidArray = 1028, "_oid", "oid[]", -1, Array, false, element Oid;
    /// An array of `xid`.
    XidArray = 1011, "_xid", "xid[]", -1, Array, false, element Xid;
    /// An array of `oidvector`.
    OidVectorArray = 1013, "_oidvector", "oidvector[]", -1, Array, false, element OidVector;
    /// An array of `json`.
    JsonArray = 199, "_json", "json[]", -1, Array, false, element Json;
    /// An array of `float4`.
    Float4Array = 1021, "_float4", "real[]", -1, Array, false, element Float4;
    /// An array of `float8`.
    Float8Array = 1022, "_float8", "double precision[]", -1, Array, false, element Float8;
    /// An array of `bpchar`.
    CharArray = 1014, "_bpchar", "character[]", -1, Array, false, element Char;
    /// An array of `varchar`.
    VarcharArray = 1015, "_varchar", "character varying[]", -1, Array, false, element Varchar;
    /// An array of `date`.
    DateArray = 1182, "_date", "date[]", -1, Array, false, element Date;
    /// An array of `time`.
    TimeArray = 1183, "_time", "time without time zone[]", -1, Array, false, element Time;
    /// An array of `timestamp`.
    TimestampArray = 1115, "_timestamp", "timestamp without time zone[]", -1, Array, false, element Timestamp;
    /// An array of `timestamptz`.
    TimestamptzArray = 1185, "_timestamptz", "timestamp with time zone[]", -1, Array, false, element Timestamptz;
    /// An array of `interval`.
    IntervalArray = 1187, "_interval", "interval[]", -1, Array, false, element Interval;
    /// An array of `numeric`.
    NumericArray = 1231, "_numeric", "numeric[]", -1, Array, false, element Numeric;
    /// An array of `regprocedure`.
    RegprocedureArray = 2207, "_regprocedure", "regprocedure[]", -1, Array, false, element Regprocedure;
    /// An array of `regoper`.
    RegoperArray = 2208, "_regoper", "regoper[]", -1, Array, false, element Regoper;
    /// An array of `regoperator`.
    RegoperatorArray = 2209, "_regoperator", "regoperator[]", -1, Array, false, element Regoperator;
    /// An array of `regcollation`.
    RegcollationArray = 4192, "_regcollation", "regcollation[]", -1, Array, false, element Regcollation;
    /// An array of `regclass`.
    RegclassArray = 2210, "_regclass", "regclass[]", -1, Array, false, element Regclass;
    /// An array of `regtype`.
    RegtypeArray = 2211, "_regtype", "regtype[]", -1, Array, false, element Regtype;
    /// An array of `uuid`.
    UuidArray = 2951, "_uuid", "uuid[]", -1, Array, false, element Uuid;
    /// An array of `jsonb`.
    JsonbArray = 3807, "_jsonb", "jsonb[]", -1, Array, false, element Jsonb;
    /// An array of `regnamespace`.
    RegnamespaceArray = 4090, "_regnamespace", "regnamespace[]", -1, Array, false, element Regnamespace;
    /// An array of `regrole`.
    RegroleArray = 4097, "_regrole", "regrole[]", -1, Array, false, element Regrole;
}

impl Kind {
    #[inline]
    const fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// The oid of the type in `pg_type`.
    #[inline]
    pub const fn oid(self) -> u32 {
        self.row().oid
    }

    /// What the catalog calls it: `int4`, `_text`.
    pub const fn catalog_name(self) -> &'static str {
        self.row().name
    }

    /// What SQL calls it: `integer`, `text[]`.
    pub const fn sql_name(self) -> &'static str {
        self.row().sql_name
    }

    /// The catalog's `typlen`: bytes, -1 for types of varying length, -2 for C strings.
    pub const fn length(self) -> i16 {
        self.row().length
    }

    /// Its category, by which overloads are chosen.
    #[inline]
    pub const fn category(self) -> Category {
        self.row().category
    }

    /// Whether it is the one in its category that overload resolution likes best.
    #[inline]
    pub const fn is_preferred(self) -> bool {
        self.row().preferred
    }

    /// The type of an array's elements.
    #[inline]
    pub const fn element(self) -> Option<Self> {
        self.row().element
    }

    /// The array of such elements.
    #[inline]
    pub const fn array(self) -> Option<Self> {
        self.row().array
    }

    /// Whether values of it are arrays.
    #[inline]
    pub const fn is_array(self) -> bool {
        self.element().is_some()
    }

    /// Whether it occurs in signatures only.
    pub const fn is_polymorphic(self) -> bool {
        matches!(self, Self::Any | Self::AnyArray | Self::AnyElement | Self::AnyNonArray)
    }

    /// Whether it is `oid` or one of its aliases that print as names.
    pub const fn is_object_id(self) -> bool {
        matches!(self, Self::Oid) || self.is_object_alias()
    }

    /// Whether it is one of the aliases of `oid` that print as names.
    pub const fn is_object_alias(self) -> bool {
        matches!(
            self,
            Self::Regproc
                | Self::Regprocedure
                | Self::Regoper
                | Self::Regoperator
                | Self::Regclass
                | Self::Regtype
                | Self::Regcollation
                | Self::Regnamespace
                | Self::Regrole
        )
    }
}

/// What SQL calls it.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sql_name())
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.catalog_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalog_agrees_with_itself() {
        for (at, &kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(kind as usize, at);
            assert_eq!(Kind::from_oid(kind.oid()), Some(kind));
            assert_eq!(Kind::from_catalog_name(kind.catalog_name()), Some(kind));
            if let Some(array) = kind.array() {
                assert_eq!(array.element(), Some(kind));
                assert_eq!(array.catalog_name(), format!("_{}", kind.catalog_name()));
            }
        }
        assert_eq!(Kind::from_oid(1), None);
    }
}
