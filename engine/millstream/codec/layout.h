#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "millstream/core/dtype.h"
#include "millstream/core/shape.h"
#include "millstream/io/byte_reader.h"

namespace millstream {

/// The layout of an array in its file: `shape.elements()` contiguous values.
struct ArrayLayout {
  DType dtype = DType::kUint8;
  Shape shape;              // the first extent is the number of rows
  std::int64_t offset = 0;  // of the first value, from the start of the header
  bool big_endian = false;

  std::int64_t bytes() const { return byte_size(dtype) * shape.elements(); }
};

/// Returns a shape whose extents were read at offset `at`. Throws `DataError` if it is
/// too large.
inline Shape stored_shape(const ByteReader& reader, std::int64_t at,
                          std::span<const std::int64_t> extents) {
  try {
    return Shape(extents);
  } catch (const ArgumentError& error) {
    reader.fail(at, "a shape that memory can hold", error.what());
  }
}

/// Throws `DataError` unless the array, whose header begins at `start`, exactly fills
/// the `size` bytes of its file or member.
inline void check_extent(const ByteReader& reader, const ArrayLayout& layout,
                         std::int64_t start, std::int64_t size) {
  const std::int64_t there = size - layout.offset;
  if (layout.bytes() == there) return;
  reader.fail(start + layout.offset,
              text(layout.bytes(), " bytes for ", name(layout.dtype), " of shape ",
                   layout.shape.str()),
              text(there, " bytes"));
}

}  // namespace millstream
