#include "millstream/transform/normalize.h"

#include <cstring>
#include <utility>

#include "millstream/core/convert.h"
#include "millstream/core/error.h"

namespace millstream {
namespace {

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

template <typename From, typename To, bool kShifts>
[[gnu::always_inline]] inline void scale_row(const std::byte* __restrict from,
                                             std::byte* __restrict to,
                                             std::int64_t count, To scale, To offset) {
  for (std::int64_t i = 0; i < count; ++i) {
    const From value = loaded<From>(from + i * static_cast<std::int64_t>(sizeof(From)));
    const To result = scaled<To>(converted<To>(value), scale, offset, kShifts);
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(To)), &result, sizeof(To));
  }
}

template <typename From, typename To>
[[gnu::always_inline]] inline void scale_rows(const Column& from, const Column& to,
                                              std::int64_t rows, To scale, To offset,
                                              bool shifts) {
  const std::int64_t count = from.shape.elements();
  for (std::int64_t k = 0; k < rows; ++k) {
    if (from.rows != nullptr && k + kPrefetchRows < rows) {
      prefetch(from.row(k + kPrefetchRows), from.row_bytes());
    }
    if (shifts) {
      scale_row<From, To, true>(from.row(k), to.row(k), count, scale, offset);
    } else {
      scale_row<From, To, false>(from.row(k), to.row(k), count, scale, offset);
    }
  }
}

#if defined(__x86_64__)
// Without FMA, because a fused multiply-add rounds once instead of twice.
template <typename From, typename To>
[[gnu::target("avx2,no-fma")]] void scale_rows_avx2(const Column& from,
                                                    const Column& to, std::int64_t rows,
                                                    To scale, To offset, bool shifts) {
  scale_rows<From, To>(from, to, rows, scale, offset, shifts);
}
const bool kAvx2 = __builtin_cpu_supports("avx2");
#endif

}  // namespace

Normalize::Normalize(std::string field, DType dtype, double scale, double offset)
    : field_(std::move(field)), dtype_(dtype), scale_(scale), offset_(offset) {
  if (scales() && !is_float_dtype(dtype)) {
    throw ArgumentError(text("normalize(", field_, "): a scale of ", scale,
                             " and an offset of ", offset,
                             " need a floating dtype, not ", name(dtype)));
  }
}

std::string Normalize::str() const {
  return scales() ? text("normalize(", field_, ")")
                  : text("cast(", field_, ", ", name(dtype_), ")");
}

Flow Normalize::flow(const Schema& input) const {
  const auto i = static_cast<std::size_t>(field_named(input, field_, str()));
  if (is_complex_dtype(input[i].dtype) && !is_complex_dtype(dtype_)) {
    throw ArgumentError(text(str(), ": ", millstream::str(input[i]),
                             " would lose its imaginary part as ", name(dtype_)));
  }
  Flow flow = passing(input);
  if (dtype_ == input[i].dtype && !scales()) return flow;
  flow.schema[i].dtype = dtype_;
  flow.from[i] = Flow::kMade;
  return flow;
}

Traits Normalize::traits() const noexcept {
  // Without x64 the batch holds 64-bit integers as 32-bit ones, and the conversion
  // throws if a value does not fit.
  return {.may_fail = is_checked(dtype_, narrowed(dtype_))};
}

void Normalize::apply(const Flow& flow, const Request& request, const Rows& in,
                      Rows& out) const {
  const std::int64_t rows = request.rows();
  for (std::size_t i = 0; i < out.columns.size(); ++i) {
    if (flow.from[i] != Flow::kMade) continue;
    const Column& from = in.columns[i];
    const Column& to = out.columns[i];
    if (!scales()) {
      const Convert convert = converter(from.dtype, to.dtype);
      for (std::int64_t k = 0; k < rows; ++k) {
        convert(from.row(k), to.row(k), from.shape.elements());
      }
      continue;
    }
    visit(from.dtype, [&](auto source) {
      visit(to.dtype, [&](auto target) {
        using From = typename decltype(source)::Type;
        using To = typename decltype(target)::Type;
        if constexpr (!is_complex<From> &&
                      (std::is_floating_point_v<To> || is_small_float<To>)) {
          const To scale = converted<To>(scale_);
          const To offset = converted<To>(offset_);
#if defined(__x86_64__)
          if (kAvx2) {
            scale_rows_avx2<From, To>(from, to, rows, scale, offset, offset_ != 0);
            return;
          }
#endif
          scale_rows<From, To>(from, to, rows, scale, offset, offset_ != 0);
        }
      });
    });
  }
}

}  // namespace millstream
