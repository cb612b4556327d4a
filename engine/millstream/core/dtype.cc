#include "millstream/core/dtype.h"

#include <array>
#include <string>

#include "millstream/core/error.h"

namespace millstream {
namespace {

constexpr std::array<std::string_view, kDTypes> kNames = {
    "bool",     "int8",    "int16",   "int32",     "int64",
    "uint8",    "uint16",  "uint32",  "uint64",    "float16",
    "bfloat16", "float32", "float64", "complex64", "complex128"};

}  // namespace

std::string_view name(DType dtype) noexcept {
  return kNames[static_cast<std::size_t>(dtype)];
}

DType dtype_named(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<DType>(i);
  }
  std::string known;
  for (const std::string_view each : kNames)
    known.append(known.empty() ? "" : ", ").append(each);
  throw ArgumentError(text("unknown dtype '", name, "': expected one of ", known));
}

DType narrowed(DType dtype) noexcept {
  switch (dtype) {
    case DType::kInt64: return DType::kInt32;
    case DType::kUint64: return DType::kUint32;
    case DType::kFloat64: return DType::kFloat32;
    case DType::kComplex128: return DType::kComplex64;
    default: return dtype;
  }
}

}  // namespace millstream
