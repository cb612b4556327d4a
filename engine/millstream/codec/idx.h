#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "millstream/codec/layout.h"

namespace millstream {

/// The length of the longest IDX header.
inline constexpr std::int64_t kIdxHeader = 4 + 4 * 255;

/// Parses the header of an IDX file (the format of MNIST) of `size` bytes. `reader`
/// holds the beginning of the file. Throws `DataError` unless the file has exactly the
/// bytes that the header announces.
ArrayLayout parse_idx(ByteReader& reader, std::int64_t size);

/// Parses the header without checking the size of the file.
ArrayLayout parse_idx_header(ByteReader& reader);

/// Returns the header of an IDX file. Throws `ArgumentError` for a dtype or an extent
/// that IDX cannot represent.
std::vector<std::byte> idx_header(DType dtype, const Shape& shape);

}  // namespace millstream
