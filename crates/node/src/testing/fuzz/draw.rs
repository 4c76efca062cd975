//! Draws a random value of any type, by deserializing it from a source of randomness.

use serde::de::value::{Error, U32Deserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, SeqAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::Randomness;

/// A deserializer for a field of this name.
pub(super) struct Draw<'a> {
    pub(super) random: &'a mut Randomness,
    pub(super) name: &'static str,
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty,)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.random.number(self.name) as $type)
        })*
    };
}

impl<'de> Deserializer<'de> for Draw<'_> {
    type Error = Error;

    numbers! {
        deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
        deserialize_u128 visit_u128 u128,
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.random.one_in(2))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.random.text())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.random.one_in(3) { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(Self { name, ..self })
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = self.random.length();
        visitor.visit_seq(Parts { random: self.random, names: &[], name: self.name, left })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, left: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(Parts { random: self.random, names: &[], name: self.name, left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_seq(Parts { random: self.random, names, name: "", left: names.len() })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(Variant { random: self.random, variants: variants.len() as u64 })
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(Error::custom("messages have no such type"))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 f32 f64 char str bytes byte_buf unit unit_struct map tuple_struct identifier ignored_any
    }
}

struct Parts<'a> {
    random: &'a mut Randomness,
    names: &'static [&'static str],
    name: &'static str,
    left: usize,
}

impl<'de> SeqAccess<'de> for Parts<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        let name = self.names.len().checked_sub(self.left).map_or(self.name, |at| self.names[at]);
        self.left -= 1;
        seed.deserialize(Draw { random: self.random, name }).map(Some)
    }
}

struct Variant<'a> {
    random: &'a mut Randomness,
    variants: u64,
}

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = Error;
    type Variant = Draw<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Draw<'a>), Error> {
        let which = self.random.rng.below(self.variants) as u32;
        let which: U32Deserializer<Error> = which.into_deserializer();
        Ok((seed.deserialize(which)?, Draw { random: self.random, name: "" }))
    }
}

impl<'de> VariantAccess<'de> for Draw<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, names: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        self.deserialize_struct("", names, visitor)
    }
}
