#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millstream/core/dtype.h"
#include "millstream/core/shape.h"

namespace millstream {

/// One value of a sample: what it is called and what it looks like.
struct Field {
  std::string name;
  DType dtype = DType::kUint8;
  Shape shape;

  bool operator==(const Field&) const = default;
};

/// The fields of a sample, in their order.
using Schema = std::vector<Field>;

/// Bytes of one such value.
inline std::int64_t byte_size(const Field& field) {
  return byte_size(field.dtype) * field.shape.elements();
}

/// "image: uint8(28, 28, 1)".
std::string str(const Field& field);
/// The same of all fields, in braces.
std::string str(const Schema& schema);

/// The position of the field of that name; throws `ArgumentError` naming `who`, the
/// missing field and those that exist.
int field_named(const Schema& schema, std::string_view name, std::string_view who);

}  // namespace millstream
