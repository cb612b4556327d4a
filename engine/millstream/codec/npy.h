#pragma once

#include <string>

#include "millstream/codec/layout.h"

namespace millstream {

/// Headers are taken to be no longer than this; NumPy's own are 128 bytes.
inline constexpr std::int64_t kNpyHeader = 4096;

/// Reads the header of an .npy file of version 1, 2 or 3, of `size` bytes in all;
/// `reader` holds its beginning. Throws `DataError` for arrays in Fortran order, big-
/// endian arrays, objects, text, records and anything but numbers, and unless the
/// values are exactly as many as the header promises.
ArrayLayout parse_npy(ByteReader& reader, std::int64_t size);

/// A version 1 header for values in C order, padded so that they are aligned to 64.
std::string npy_header(DType dtype, const Shape& shape);

}  // namespace millstream
