#pragma once

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>

#include "millstream/core/column.h"
#include "millstream/core/dtype.h"
#include "millstream/core/error.h"

namespace millstream {

/// Converts `value` as XLA does: integers wrap around; floats saturate when they become
/// integers, and NaN becomes 0; complex numbers lose their imaginary part.
template <typename To, typename From>
To converted(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (is_complex<From> && !is_complex<To>) {
    return converted<To>(value.real());
  } else if constexpr (is_complex<From>) {
    using Part = typename To::value_type;
    return To(static_cast<Part>(value.real()), static_cast<Part>(value.imag()));
  } else if constexpr (is_complex<To>) {
    return To(converted<typename To::value_type>(value));
  } else if constexpr (is_small_float<From>) {
    return converted<To>(static_cast<float>(value));
  } else if constexpr (is_small_float<To>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From{};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    using Limits = std::numeric_limits<To>;
    if (std::isnan(value)) return To{0};
    if (value <= static_cast<From>(Limits::min())) return Limits::min();
    // As a float, the limit may round up to a power of two that To cannot hold.
    if (value >= static_cast<From>(Limits::max())) return Limits::max();
    return static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

/// Loads a value from `from`, which need not be aligned. For bool, every byte other
/// than 0 is true.
template <typename T>
[[gnu::always_inline]] inline T loaded(const std::byte* from) {
  if constexpr (std::is_same_v<T, bool>) {
    return *from != std::byte{0};
  } else {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }
}

/// Converts `count` values and writes all of them. From 64-bit to 32-bit integers of
/// the same signedness, returns how many values precede the first one that does not
/// fit, or `count`. All other conversions return `count`.
using Convert = std::int64_t (*)(const std::byte* from, std::byte* to,
                                 std::int64_t count);

/// The conversion between two types; never null.
Convert converter(DType from, DType to);

/// Whether `converter(from, to)` checks that values fit.
constexpr bool is_checked(DType from, DType to) noexcept {
  return (from == DType::kInt64 && to == DType::kInt32) ||
         (from == DType::kUint64 && to == DType::kUint32);
}

/// The error for `element` of a row that `to` cannot hold. `place` says where the row
/// is, and `from` is the column whose dtype and shape the row has.
DataError unfit(ErrorFields place, const Column& from, const std::byte* row,
                std::int64_t element, DType to);

/// Converts rows [0, rows) of `from` into `to`. Row k is sample `indices[k]`. Throws
/// `DataError` with `field` and the first sample whose value does not fit.
void convert_rows(std::string_view field, const Column& from, const Column& to,
                  std::int64_t rows, std::span<const std::int64_t> indices);

}  // namespace millstream
