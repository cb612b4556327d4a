#include "millstream/transform/normalize.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "millstream/core/convert.h"
#include "millstream/core/cpu.h"
#include "millstream/core/error.h"
#include "millstream/transform/arithmetic.h"

namespace millstream {
namespace {

/// The least number of elements for an inner loop to be worth vectorizing.
constexpr std::int64_t kLeastPeriod = 96;

template <typename From, typename To, bool kShifts, bool kStandardizes>
[[gnu::always_inline]] inline void scale_row(const std::byte* __restrict from,
                                             std::byte* __restrict to,
                                             std::int64_t count,
                                             const Numbers<To>& numbers) {
  const To scale = numbers.scale;
  const To offset = numbers.offset;
  const To* __restrict mean = numbers.mean;
  const To* __restrict std = numbers.std;
  for (std::int64_t i = 0; i < count; ++i) {
    const From value = loaded<From>(from + i * static_cast<std::int64_t>(sizeof(From)));
    To result = scaled<To>(converted<To>(value), scale, offset, kShifts);
    if constexpr (kStandardizes) result = standardized<To>(result, mean[i], std[i]);
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(To)), &result, sizeof(To));
  }
}

template <typename From, typename To, bool kShifts>
[[gnu::always_inline]] inline void scale_row(const std::byte* from, std::byte* to,
                                             std::int64_t count,
                                             const Numbers<To>& numbers) {
  if (numbers.period == 0) {
    scale_row<From, To, kShifts, false>(from, to, count, numbers);
    return;
  }
  for (std::int64_t at = 0; at < count; at += numbers.period) {
    scale_row<From, To, kShifts, true>(
        from + at * static_cast<std::int64_t>(sizeof(From)),
        to + at * static_cast<std::int64_t>(sizeof(To)),
        std::min(count - at, numbers.period), numbers);
  }
}

template <typename From, typename To>
[[gnu::always_inline]] inline void scale_rows(const Column& from, const Column& to,
                                              std::int64_t rows,
                                              const Numbers<To>& numbers) {
  const std::int64_t count = from.shape.elements();
  for (std::int64_t k = 0; k < rows; ++k) {
    if (from.rows != nullptr && k + kPrefetchRows < rows) {
      prefetch(from.row(k + kPrefetchRows), from.row_bytes());
    }
    if (numbers.shifts) {
      scale_row<From, To, true>(from.row(k), to.row(k), count, numbers);
    } else {
      scale_row<From, To, false>(from.row(k), to.row(k), count, numbers);
    }
  }
}

#if defined(__x86_64__)
// Without FMA, because a fused multiply-add rounds once instead of twice.
template <typename From, typename To>
[[gnu::target("avx2,no-fma")]] void scale_rows_avx2(const Column& from,
                                                    const Column& to, std::int64_t rows,
                                                    const Numbers<To>& numbers) {
  scale_rows<From, To>(from, to, rows, numbers);
}
#endif

/// The number of entries of a sequence, or 0 for a single number.
std::int64_t entries(const PerChannel& value) {
  const auto* several = std::get_if<std::vector<double>>(&value);
  return several == nullptr ? 0 : static_cast<std::int64_t>(several->size());
}

bool is_sequence(const PerChannel& value) {
  return std::holds_alternative<std::vector<double>>(value);
}

/// Repeats the entries to `period + kRepeated` values of type `dtype`.
std::vector<std::byte> repeated(const PerChannel& value, DType dtype,
                                std::int64_t period) {
  if (period == 0) return {};
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(byte_size(dtype) * (period + kRepeated)));
  visit(dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
      const auto* several = std::get_if<std::vector<double>>(&value);
      const T entry =
          converted<T>(several == nullptr ? std::get<double>(value)
                                          : (*several)[i % several->size()]);
      std::memcpy(bytes.data() + i * sizeof(T), &entry, sizeof(T));
    }
  });
  return bytes;
}

}  // namespace

Normalize::Normalize(std::string field, DType dtype, double scale, double offset,
                     const PerChannel& mean, const PerChannel& std)
    : field_(std::move(field)),
      dtype_(dtype),
      scale_(scale),
      offset_(offset),
      per_channel_(is_sequence(mean)  ? "mean"
                   : is_sequence(std) ? "std"
                                      : ""),
      channels_(is_sequence(mean) ? entries(mean) : entries(std)) {
  const std::string who = text("normalize(", field_, "): ");
  if (is_sequence(mean) && is_sequence(std) && entries(mean) != entries(std)) {
    throw ArgumentError(text(who, "mean has ", entries(mean), " entries, but std has ",
                             entries(std), ". Pass one entry per channel to both"));
  }
  if (!per_channel_.empty() && channels_ == 0) {
    throw ArgumentError(
        text(who, per_channel_, " has no entries. Pass a number, or one per channel"));
  }
  if (!per_channel_.empty() || mean != PerChannel(0.0) || std != PerChannel(1.0)) {
    const std::int64_t channels = std::max<std::int64_t>(channels_, 1);
    period_ = channels * ((kLeastPeriod + channels - 1) / channels);
  }
  if (scales() && !is_float_dtype(dtype)) {
    throw ArgumentError(
        period_ != 0 ? text(who,
                            "a mean and a standard deviation need a "
                            "floating dtype, not ",
                            name(dtype))
                     : text(who, "a scale of ", scale, " and an offset of ", offset,
                            " need a floating dtype, not ", name(dtype)));
  }
  mean_ = repeated(mean, dtype, period_);
  std_ = repeated(std, dtype, period_);
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
  const Shape& shape = input[i].shape;
  const std::int64_t found = shape.rank() == 0 ? 0 : shape[shape.rank() - 1];
  if (!per_channel_.empty() && found != channels_) {
    throw ArgumentError(text(str(), ": ", per_channel_, " has ", channels_,
                             " entries, but the last axis of ",
                             millstream::str(input[i]), " has ", found,
                             " channels. Pass one entry per channel, or one number"));
  }
  Flow flow = passing(input);
  if (dtype_ == input[i].dtype && !scales()) return flow;
  flow.schema[i].dtype = dtype_;
  flow.from[i] = Flow::kMade;
  return flow;
}

template <typename T>
Numbers<T> Normalize::numbers() const {
  return {converted<T>(scale_),
          converted<T>(offset_),
          reinterpret_cast<const T*>(mean_.data()),
          reinterpret_cast<const T*>(std_.data()),
          period_,
          offset_ != 0};
}

void Normalize::apply(const Flow& flow, const Request& request, const Rows& in,
                      Rows& out) const {
  const std::int64_t rows = request.rows();
  for (std::size_t i = 0; i < out.columns.size(); ++i) {
    if (flow.from[i] != Flow::kMade) continue;
    const Column& from = in.columns[i];
    const Column& to = out.columns[i];
    const bool pixels = from.dtype == DType::kUint8 && to.dtype == DType::kFloat32;
    if (pixels && to.large && stream_pixels(from, to, rows, numbers<float>())) continue;
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
#if defined(__x86_64__)
          if (has_avx2()) {
            scale_rows_avx2<From, To>(from, to, rows, numbers<To>());
            return;
          }
#endif
          scale_rows<From, To>(from, to, rows, numbers<To>());
        }
      });
    });
  }
}

}  // namespace millstream
