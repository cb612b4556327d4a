#pragma once

#include <cstddef>
#include <cstdint>

#include "millstream/core/dtype.h"
#include "millstream/core/shape.h"

namespace millstream {

/// Reverses the bytes of each of `count` values; for complex values, of both parts.
void swap_bytes(std::byte* values, DType dtype, std::int64_t count);

/// Replaces every byte other than 0 by 1. Files may hold other values of a bool, but
/// C++ and XLA do not allow them.
void clean_booleans(std::byte* values, std::int64_t count);

/// Converts an image from three planes to pixels. `shape` is [height, width, 3].
void interleave(const std::byte* planes, std::byte* pixels, const Shape& shape);

}  // namespace millstream
