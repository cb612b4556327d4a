#pragma once

#include <string>

#include "millstream/codec/layout.h"

namespace millstream {

/// The longest header that `parse_npy` accepts. NumPy usually writes 128 bytes.
inline constexpr std::int64_t kNpyHeader = 4096;

/// Parses the header of an .npy file of version 1, 2 or 3 and `size` bytes. `reader`
/// holds the beginning of the file. Throws `DataError` for arrays in Fortran order, for
/// big-endian arrays and for values other than numbers. Also throws unless the file has
/// exactly the values that the header announces.
ArrayLayout parse_npy(ByteReader& reader, std::int64_t size);

/// Returns a version 1 header for an array in C order. Padding aligns the values to 64
/// bytes. Throws `ArgumentError` for bfloat16.
std::string npy_header(DType dtype, const Shape& shape);

}  // namespace millstream
