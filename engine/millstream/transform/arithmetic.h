#pragma once

#include <cstddef>
#include <cstdint>

#include "millstream/core/column.h"
#include "millstream/core/dtype.h"

namespace millstream {

/// `value * scale + offset` in type T, rounded after each operation.
template <typename T>
[[gnu::always_inline]] inline T scaled(T value, T scale, T offset, bool shifts) {
  if constexpr (is_small_float<T>) {
    const T product(static_cast<float>(value) * static_cast<float>(scale));
    return shifts ? T(static_cast<float>(product) + static_cast<float>(offset))
                  : product;
  } else {
    const T product = value * scale;
    return shifts ? product + offset : product;
  }
}

/// `(value - mean) / std` in type T, rounded after each operation.
template <typename T>
[[gnu::always_inline]] inline T standardized(T value, T mean, T std) {
  if constexpr (is_small_float<T>) {
    const T centred(static_cast<float>(value) - static_cast<float>(mean));
    return T(static_cast<float>(centred) / static_cast<float>(std));
  } else {
    return (value - mean) / std;
  }
}

/// The numbers of a `Normalize` in type T. `period` is a multiple of the number of
/// channels. `mean` and `std` have `period + kRepeated` entries.
template <typename T>
struct Numbers {
  T scale;
  T offset;
  const T* mean;
  const T* std;
  std::int64_t period;  // 0 without a mean and a standard deviation
  bool shifts;
};

/// The first entries of `Numbers::mean` and `std` are repeated this often at the end,
/// so that a vector may begin at any entry.
inline constexpr std::int64_t kRepeated = 16;

/// Normalises rows of uint8 to float32 and writes them to memory without reading it
/// into the CPU's caches first. Returns false and does nothing if the CPU cannot.
bool stream_pixels(const Column& from, const Column& to, std::int64_t rows,
                   const Numbers<float>& numbers);

}  // namespace millstream
