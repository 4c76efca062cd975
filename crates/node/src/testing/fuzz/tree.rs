//! A message as a tree of its values. It can be changed, and encodes to the same bytes as the message.

use std::fmt;

use serde::Serialize;
use serde::ser::{
    Error as _, Impossible, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleVariant, Serializer,
};

use super::Randomness;

#[derive(Clone, Debug)]
pub(super) enum Tree {
    /// By the name of its field or type. Bytes are encoded as they are, others as varints.
    Number {
        name: &'static str,
        is_byte: bool,
        value: u128,
    },
    Bool(bool),
    Text(String),
    Option(Option<Box<Self>>),
    /// Encoded with its length.
    List(Vec<Self>),
    /// Of fixed length.
    Group(Vec<Self>),
    Variant(u32, &'static str, Box<Self>),
}

impl Tree {
    pub(super) fn of(value: &impl Serialize) -> Self {
        value.serialize(ToTree("")).unwrap_or(Self::Group(Vec::new()))
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Number { is_byte: true, value, .. } => out.push(*value as u8),
            Self::Number { value, .. } => varint(*value, out),
            Self::Bool(value) => out.push(u8::from(*value)),
            Self::Text(text) => {
                varint(text.len() as u128, out);
                out.extend(text.as_bytes());
            }
            Self::Option(value) => {
                out.push(u8::from(value.is_some()));
                value.iter().for_each(|value| value.encode(out));
            }
            Self::List(parts) => {
                varint(parts.len() as u128, out);
                parts.iter().for_each(|part| part.encode(out));
            }
            Self::Group(parts) => parts.iter().for_each(|part| part.encode(out)),
            Self::Variant(which, _, value) => {
                varint(u128::from(*which), out);
                value.encode(out);
            }
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    pub(super) fn is_variant(&self, names: &[&str]) -> bool {
        matches!(self, Self::Variant(_, name, _) if names.contains(name))
    }

    fn parts(&self) -> Vec<&Self> {
        match self {
            Self::Option(value) => value.iter().map(|value| &**value).collect(),
            Self::List(parts) | Self::Group(parts) => parts.iter().collect(),
            Self::Variant(_, _, value) => vec![value],
            Self::Number { .. } | Self::Bool(_) | Self::Text(_) => Vec::new(),
        }
    }

    fn parts_mut(&mut self) -> Vec<&mut Self> {
        match self {
            Self::Option(value) => value.iter_mut().map(|value| &mut **value).collect(),
            Self::List(parts) | Self::Group(parts) => parts.iter_mut().collect(),
            Self::Variant(_, _, value) => vec![value],
            Self::Number { .. } | Self::Bool(_) | Self::Text(_) => Vec::new(),
        }
    }

    pub(super) fn visit(&self, look: &mut impl FnMut(&Self)) {
        look(self);
        self.parts().into_iter().for_each(|part| part.visit(look));
    }

    pub(super) fn change(&mut self, random: &mut Randomness) {
        let deeper = self.parts_mut();
        if !deeper.is_empty() && !random.one_in(6) {
            let which = random.rng.below(deeper.len() as u64) as usize;
            return deeper.into_iter().nth(which).into_iter().for_each(|part| part.change(random));
        }
        match self {
            Self::Number { name, value, .. } => *value = random.number(name),
            Self::Bool(value) => *value = !*value,
            Self::Text(text) => *text = random.text(),
            Self::Option(value) => *value = None,
            Self::List(parts) if random.one_in(2) => parts.clear(),
            Self::List(parts) => {
                if let Some(one) = Randomness::pick(&mut random.rng, parts) {
                    parts.extend(vec![one; random.length()]);
                }
            }
            // Another variant with the same fields; usually not decodable.
            Self::Variant(which, ..) if random.one_in(4) => *which = random.rng.below(12) as u32,
            Self::Group(_) | Self::Variant(..) => {}
        }
    }
}

fn varint(mut value: u128, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A serializer for a field of this name.
struct ToTree(&'static str);

/// A serializer for the parts of a value.
struct Parts {
    name: &'static str,
    parts: Vec<Tree>,
    finish: Finish,
}

enum Finish {
    List,
    Group,
    Variant(u32, &'static str),
}

impl Parts {
    fn push<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), fmt::Error> {
        self.parts.push(value.serialize(ToTree(name))?);
        Ok(())
    }

    fn finish(self) -> Made {
        Ok(match self.finish {
            Finish::List => Tree::List(self.parts),
            Finish::Group => Tree::Group(self.parts),
            Finish::Variant(which, name) => Tree::Variant(which, name, Box::new(Tree::Group(self.parts))),
        })
    }
}

type Made = Result<Tree, fmt::Error>;

fn number(name: &'static str, value: u128) -> Made {
    Ok(Tree::Number { name, is_byte: false, value })
}

fn parts(name: &'static str, finish: Finish) -> Result<Parts, fmt::Error> {
    Ok(Parts { name, parts: Vec::new(), finish })
}

macro_rules! numbers {
    ($($method:ident $type:ty,)*) => {
        $(fn $method(self, value: $type) -> Made {
            number(self.0, value.into())
        })*
    };
}

macro_rules! no_messages_have {
    ($($method:ident($($type:ty),*) $made:ty,)*) => {
        $(fn $method(self, $(_: $type),*) -> Result<$made, fmt::Error> {
            Err(fmt::Error::custom("messages have no such type"))
        })*
    };
}

impl Serializer for ToTree {
    type Ok = Tree;
    type Error = fmt::Error;
    type SerializeSeq = Parts;
    type SerializeTuple = Parts;
    type SerializeTupleStruct = Impossible<Tree, fmt::Error>;
    type SerializeTupleVariant = Parts;
    type SerializeMap = Impossible<Tree, fmt::Error>;
    type SerializeStruct = Parts;
    type SerializeStructVariant = Parts;

    numbers! {
        serialize_u16 u16,
        serialize_u32 u32,
        serialize_u64 u64,
        serialize_u128 u128,
    }

    fn serialize_bool(self, value: bool) -> Made {
        Ok(Tree::Bool(value))
    }
    fn serialize_u8(self, value: u8) -> Made {
        Ok(Tree::Number { name: self.0, is_byte: true, value: value.into() })
    }
    fn serialize_str(self, value: &str) -> Made {
        Ok(Tree::Text(value.to_owned()))
    }
    fn serialize_none(self) -> Made {
        Ok(Tree::Option(None))
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Made {
        Ok(Tree::Option(Some(Box::new(value.serialize(self)?))))
    }
    fn serialize_unit(self) -> Made {
        Ok(Tree::Group(Vec::new()))
    }
    fn serialize_unit_variant(self, _: &'static str, which: u32, name: &'static str) -> Made {
        Ok(Tree::Variant(which, name, Box::new(Tree::Group(Vec::new()))))
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Made {
        value.serialize(Self(name))
    }
    fn serialize_newtype_variant<T>(self, _: &'static str, which: u32, name: &'static str, value: &T) -> Made
    where
        T: Serialize + ?Sized,
    {
        Ok(Tree::Variant(which, name, Box::new(value.serialize(self)?)))
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Parts, fmt::Error> {
        parts(self.0, Finish::List)
    }
    fn serialize_tuple(self, _: usize) -> Result<Parts, fmt::Error> {
        parts(self.0, Finish::Group)
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Parts, fmt::Error> {
        parts("", Finish::Group)
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        which: u32,
        name: &'static str,
        _: usize,
    ) -> Result<Parts, fmt::Error> {
        parts("", Finish::Variant(which, name))
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        which: u32,
        name: &'static str,
        _: usize,
    ) -> Result<Parts, fmt::Error> {
        parts("", Finish::Variant(which, name))
    }

    no_messages_have! {
        serialize_i8(i8) Tree,
        serialize_i16(i16) Tree,
        serialize_i32(i32) Tree,
        serialize_i64(i64) Tree,
        serialize_f32(f32) Tree,
        serialize_f64(f64) Tree,
        serialize_char(char) Tree,
        serialize_bytes(&[u8]) Tree,
        serialize_unit_struct(&'static str) Tree,
        serialize_tuple_struct(&'static str, usize) Impossible<Tree, fmt::Error>,
        serialize_map(Option<usize>) Impossible<Tree, fmt::Error>,
    }
}

macro_rules! parts {
    ($($of:ident $method:ident,)*) => {
        $(impl $of for Parts {
            type Ok = Tree;
            type Error = fmt::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), fmt::Error> {
                self.push(self.name, value)
            }
            fn end(self) -> Made {
                self.finish()
            }
        })*
    };
}

macro_rules! fields {
    ($($of:ident,)*) => {
        $(impl $of for Parts {
            type Ok = Tree;
            type Error = fmt::Error;

            fn serialize_field<T>(&mut self, name: &'static str, value: &T) -> Result<(), fmt::Error>
            where
                T: Serialize + ?Sized,
            {
                self.push(name, value)
            }
            fn end(self) -> Made {
                self.finish()
            }
        })*
    };
}

parts! { SerializeSeq serialize_element, SerializeTuple serialize_element, SerializeTupleVariant serialize_field, }
fields! { SerializeStruct, SerializeStructVariant, }
