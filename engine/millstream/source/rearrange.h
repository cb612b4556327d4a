#pragma once

#include <cstddef>
#include <cstdint>

#include "millstream/core/dtype.h"
#include "millstream/core/shape.h"

namespace millstream {

/// Reverses the bytes of each of `count` values, and of both parts of complex ones.
void swap_bytes(std::byte* values, DType dtype, std::int64_t count);

/// Makes 1 of every byte that is not 0: files may hold others, C++ and XLA may not.
void clean_booleans(std::byte* values, std::int64_t count);

/// Writes the bytes of an image stored as three planes as pixels; `shape` is [height,
/// width, 3].
void interleave(const std::byte* planes, std::byte* pixels, const Shape& shape);

}  // namespace millstream
