#pragma once

#include <complex>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "millstream/core/half.h"

namespace millstream {

/// The type of one element. Saved states depend on these values: never change one, only
/// append new ones.
enum class DType : std::uint8_t {
  kBool,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
};
inline constexpr int kDTypes = 15;

/// The name that NumPy uses, e.g. "uint8".
std::string_view name(DType dtype) noexcept;

/// The type called `name`. Throws `ArgumentError` if there is none.
DType dtype_named(std::string_view name);

/// The type that JAX uses for `dtype` while its 64-bit types are disabled: the 32-bit
/// type of the same kind for a 64-bit type, else `dtype` itself.
DType narrowed(DType dtype) noexcept;

template <typename T>
struct TypeTag {
  using Type = T;
};

/// Calls `function(TypeTag<T>{})` with the C++ type of `dtype`.
template <typename Function>
decltype(auto) visit(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kBool: return function(TypeTag<bool>{});
    case DType::kInt8: return function(TypeTag<std::int8_t>{});
    case DType::kInt16: return function(TypeTag<std::int16_t>{});
    case DType::kInt32: return function(TypeTag<std::int32_t>{});
    case DType::kInt64: return function(TypeTag<std::int64_t>{});
    case DType::kUint8: return function(TypeTag<std::uint8_t>{});
    case DType::kUint16: return function(TypeTag<std::uint16_t>{});
    case DType::kUint32: return function(TypeTag<std::uint32_t>{});
    case DType::kUint64: return function(TypeTag<std::uint64_t>{});
    case DType::kFloat16: return function(TypeTag<Half>{});
    case DType::kBfloat16: return function(TypeTag<BFloat16>{});
    case DType::kFloat32: return function(TypeTag<float>{});
    case DType::kFloat64: return function(TypeTag<double>{});
    case DType::kComplex64: return function(TypeTag<std::complex<float>>{});
    case DType::kComplex128: break;
  }
  return function(TypeTag<std::complex<double>>{});
}

/// Bytes of one element.
inline std::int64_t byte_size(DType dtype) noexcept {
  return visit(dtype, [](auto tag) -> std::int64_t {
    return static_cast<std::int64_t>(sizeof(typename decltype(tag)::Type));
  });
}

template <typename T>
inline constexpr bool is_complex = false;
template <typename T>
inline constexpr bool is_complex<std::complex<T>> = true;
template <typename T>
inline constexpr bool is_small_float =
    std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

inline bool is_complex_dtype(DType dtype) noexcept {
  return dtype == DType::kComplex64 || dtype == DType::kComplex128;
}
inline bool is_float_dtype(DType dtype) noexcept {
  return dtype >= DType::kFloat16 && dtype <= DType::kFloat64;
}

}  // namespace millstream
