//! A message as a tree of its values. It can be changed, and encodes to the same bytes as the message.

use std::fmt;

use serde::Serialize;
use serde::ser::{
    Error as _, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple, SerializeTupleVariant,
    Serializer,
};

use super::Chance;

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

    pub(super) fn change(&mut self, chance: &mut Chance) {
        let deeper = self.parts_mut();
        if !deeper.is_empty() && !chance.one_in(6) {
            let which = chance.rng.below(deeper.len() as u64) as usize;
            return deeper.into_iter().nth(which).into_iter().for_each(|part| part.change(chance));
        }
        match self {
            Self::Number { name, value, .. } => *value = chance.number(name),
            Self::Bool(value) => *value = !*value,
            Self::Text(text) => *text = chance.text(),
            Self::Option(value) => *value = None,
            Self::List(parts) if chance.one_in(2) => parts.clear(),
            Self::List(parts) => {
                if let Some(one) = Chance::pick(&mut chance.rng, parts) {
                    parts.extend(vec![one; chance.length()]);
                }
            }
            // Another variant with the same fields; usually not decodable.
            Self::Variant(which, ..) if chance.one_in(4) => *which = chance.rng.below(12) as u32,
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

struct ListTo(&'static str, Vec<Tree>);
struct GroupTo(&'static str, Vec<Tree>);
struct VariantTo(u32, &'static str, Vec<Tree>);

type Made = Result<Tree, fmt::Error>;

fn number(name: &'static str, value: u128) -> Made {
    Ok(Tree::Number { name, is_byte: false, value })
}

fn never<T>() -> Result<T, fmt::Error> {
    Err(fmt::Error::custom("messages have no such type"))
}

impl Serializer for ToTree {
    type Ok = Tree;
    type Error = fmt::Error;
    type SerializeSeq = ListTo;
    type SerializeTuple = GroupTo;
    type SerializeTupleStruct = serde::ser::Impossible<Tree, fmt::Error>;
    type SerializeTupleVariant = VariantTo;
    type SerializeMap = serde::ser::Impossible<Tree, fmt::Error>;
    type SerializeStruct = GroupTo;
    type SerializeStructVariant = VariantTo;

    fn serialize_bool(self, value: bool) -> Made {
        Ok(Tree::Bool(value))
    }
    fn serialize_u8(self, value: u8) -> Made {
        Ok(Tree::Number { name: self.0, is_byte: true, value: value.into() })
    }
    fn serialize_u16(self, value: u16) -> Made {
        number(self.0, value.into())
    }
    fn serialize_u32(self, value: u32) -> Made {
        number(self.0, value.into())
    }
    fn serialize_u64(self, value: u64) -> Made {
        number(self.0, value.into())
    }
    fn serialize_u128(self, value: u128) -> Made {
        number(self.0, value)
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
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        which: u32,
        name: &'static str,
        value: &T,
    ) -> Made {
        Ok(Tree::Variant(which, name, Box::new(value.serialize(self)?)))
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<ListTo, fmt::Error> {
        Ok(ListTo(self.0, Vec::new()))
    }
    fn serialize_tuple(self, _: usize) -> Result<GroupTo, fmt::Error> {
        Ok(GroupTo(self.0, Vec::new()))
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        which: u32,
        name: &'static str,
        _: usize,
    ) -> Result<VariantTo, fmt::Error> {
        Ok(VariantTo(which, name, Vec::new()))
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<GroupTo, fmt::Error> {
        Ok(GroupTo(self.0, Vec::new()))
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        which: u32,
        name: &'static str,
        _: usize,
    ) -> Result<VariantTo, fmt::Error> {
        Ok(VariantTo(which, name, Vec::new()))
    }

    fn serialize_i8(self, _: i8) -> Made {
        never()
    }
    fn serialize_i16(self, _: i16) -> Made {
        never()
    }
    fn serialize_i32(self, _: i32) -> Made {
        never()
    }
    fn serialize_i64(self, _: i64) -> Made {
        never()
    }
    fn serialize_f32(self, _: f32) -> Made {
        never()
    }
    fn serialize_f64(self, _: f64) -> Made {
        never()
    }
    fn serialize_char(self, _: char) -> Made {
        never()
    }
    fn serialize_bytes(self, _: &[u8]) -> Made {
        never()
    }
    fn serialize_unit_struct(self, _: &'static str) -> Made {
        never()
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeTupleStruct, fmt::Error> {
        never()
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, fmt::Error> {
        never()
    }
}

impl SerializeSeq for ListTo {
    type Ok = Tree;
    type Error = fmt::Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), fmt::Error> {
        self.1.push(value.serialize(ToTree(self.0))?);
        Ok(())
    }
    fn end(self) -> Made {
        Ok(Tree::List(self.1))
    }
}

impl SerializeTuple for GroupTo {
    type Ok = Tree;
    type Error = fmt::Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), fmt::Error> {
        self.1.push(value.serialize(ToTree(self.0))?);
        Ok(())
    }
    fn end(self) -> Made {
        Ok(Tree::Group(self.1))
    }
}

impl SerializeStruct for GroupTo {
    type Ok = Tree;
    type Error = fmt::Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), fmt::Error> {
        self.1.push(value.serialize(ToTree(name))?);
        Ok(())
    }
    fn end(self) -> Made {
        Ok(Tree::Group(self.1))
    }
}

impl SerializeTupleVariant for VariantTo {
    type Ok = Tree;
    type Error = fmt::Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), fmt::Error> {
        self.2.push(value.serialize(ToTree(""))?);
        Ok(())
    }
    fn end(self) -> Made {
        Ok(Tree::Variant(self.0, self.1, Box::new(Tree::Group(self.2))))
    }
}

impl SerializeStructVariant for VariantTo {
    type Ok = Tree;
    type Error = fmt::Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), fmt::Error> {
        self.2.push(value.serialize(ToTree(name))?);
        Ok(())
    }
    fn end(self) -> Made {
        Ok(Tree::Variant(self.0, self.1, Box::new(Tree::Group(self.2))))
    }
}
