#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "millstream/codec/layout.h"

namespace millstream {

/// Bytes that hold every IDX header.
inline constexpr std::int64_t kIdxHeader = 4 + 4 * 255;

/// Reads the header of an IDX file, as MNIST has it, of `size` bytes in all. `reader`
/// holds its beginning. Throws `DataError` unless the payload is exactly what the
/// header promises.
ArrayLayout parse_idx(ByteReader& reader, std::int64_t size);

/// The same without a look at the payload.
ArrayLayout parse_idx_header(ByteReader& reader);

/// The header of such a file. Throws `ArgumentError` for a dtype or an extent that IDX
/// does not have.
std::vector<std::byte> idx_header(DType dtype, const Shape& shape);

}  // namespace millstream
