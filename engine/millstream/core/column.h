#pragma once

#include <cstddef>
#include <cstdint>

#include "millstream/core/dtype.h"
#include "millstream/core/shape.h"

namespace millstream {

/// One field of several samples. A dense column has row k at `data + k * stride`; a
/// scattered column sets `rows` and has row k at `rows[k]`. Does not own the memory.
struct Column {
  DType dtype = DType::kUint8;
  Shape shape;  // of one row
  std::byte* data = nullptr;
  std::int64_t stride = 0;
  std::byte** rows = nullptr;
  /// The rows belong to a batch that does not fit into the CPU's caches, so writers may
  /// write around them.
  bool large = false;

  std::byte* row(std::int64_t k) const noexcept {
    return rows != nullptr ? rows[k] : data + k * stride;
  }
  std::int64_t row_bytes() const noexcept {
    return byte_size(dtype) * shape.elements();
  }
};

/// Prefetches the first bytes of a row into the CPU cache. The hardware cannot predict
/// rows in random order, but it streams the rest of a long row by itself.
inline void prefetch(const std::byte* row, std::int64_t bytes) noexcept {
  constexpr std::int64_t kLine = 64;
  constexpr std::int64_t kMost = 1024;
  const std::int64_t end = bytes < kMost ? bytes : kMost;
  for (std::int64_t at = 0; at < end; at += kLine) __builtin_prefetch(row + at);
}

/// How many rows ahead of the current one to prefetch.
inline constexpr std::int64_t kPrefetchRows = 4;

}  // namespace millstream
