#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millstream/core/dtype.h"
#include "millstream/core/shape.h"

namespace millstream {

/// One field of a sample: its name, dtype and shape.
struct Field {
  std::string name;
  DType dtype = DType::kUint8;
  Shape shape;

  bool operator==(const Field&) const = default;
};

/// The fields of a sample, in order.
using Schema = std::vector<Field>;

/// Bytes of one value of the field.
inline std::int64_t byte_size(const Field& field) {
  return byte_size(field.dtype) * field.shape.elements();
}

/// The field of `length` values of `field`, stacked along a new first axis.
Field stacked(const Field& field, std::int64_t length);

/// The field as text, e.g. "image: uint8(28, 28, 1)".
std::string str(const Field& field);
/// All fields in braces, e.g. "{image: uint8(28, 28, 1), label: uint8()}".
std::string str(const Schema& schema);

/// The position of the field called `name`. Throws `ArgumentError`, whose message names
/// `who`, the missing field and the existing fields.
int field_named(const Schema& schema, std::string_view name, std::string_view who);

}  // namespace millstream
