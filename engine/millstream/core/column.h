#pragma once

#include <cstddef>
#include <cstdint>

#include "millstream/core/dtype.h"
#include "millstream/core/shape.h"

namespace millstream {

/// One field of several samples: dense (row k at `data + k * stride`) or, where
/// `rows` is set, scattered (row k at `rows[k]`). Borrows all that it points to.
struct Column {
  DType dtype = DType::kUint8;
  Shape shape;  // of one row
  std::byte* data = nullptr;
  std::int64_t stride = 0;
  std::byte** rows = nullptr;

  std::byte* row(std::int64_t k) const noexcept {
    return rows != nullptr ? rows[k] : data + k * stride;
  }
  std::int64_t row_bytes() const noexcept {
    return byte_size(dtype) * shape.elements();
  }
};

}  // namespace millstream
