#include "millstream/core/convert.h"

#include <string>
#include <utility>

#include "millstream/core/cpu.h"

namespace millstream {
namespace {

template <typename From, typename To>
constexpr bool kNarrows = (std::is_same_v<From, std::int64_t> &&
                           std::is_same_v<To, std::int32_t>) ||
                          (std::is_same_v<From, std::uint64_t> &&
                           std::is_same_v<To, std::uint32_t>);

template <typename From, typename To>
[[gnu::always_inline]] inline std::int64_t convert_any(const std::byte* from,
                                                       std::byte* to,
                                                       std::int64_t count) {
  if constexpr (std::is_same_v<From, To>) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(To));
    return count;
  }
  const auto load = [from](std::int64_t i) {
    return loaded<From>(from + i * static_cast<std::int64_t>(sizeof(From)));
  };
  const auto store = [to](std::int64_t i, To value) {
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof(To)), &value, sizeof(To));
  };
  bool fits = true;
  for (std::int64_t i = 0; i < count; ++i) {
    const From value = load(i);
    const To result = converted<To>(value);
    if constexpr (kNarrows<From, To>) fits &= static_cast<From>(result) == value;
    store(i, result);
  }
  if constexpr (kNarrows<From, To>) {
    if (!fits) {
      std::int64_t i = 0;
      while (static_cast<From>(static_cast<To>(load(i))) == load(i)) ++i;
      return i;
    }
  }
  return count;
}

template <typename From, typename To>
std::int64_t convert(const std::byte* from, std::byte* to, std::int64_t count) {
  return convert_any<From, To>(from, to, count);
}

#if defined(__x86_64__)
template <typename From, typename To>
[[gnu::target("avx2")]] std::int64_t convert_avx2(const std::byte* from, std::byte* to,
                                                  std::int64_t count) {
  return convert_any<From, To>(from, to, count);
}
#endif

/// The types whose conversions the compiler vectorizes.
template <typename T>
constexpr bool kVectorizes = !is_complex<T>;

}  // namespace

Convert converter(DType from, DType to) {
  return visit(from, [to](auto source) -> Convert {
    return visit(to, [](auto target) -> Convert {
      using From = typename decltype(source)::Type;
      using To = typename decltype(target)::Type;
#if defined(__x86_64__)
      if constexpr (kVectorizes<From> && kVectorizes<To> && !std::is_same_v<From, To>) {
        if (has_avx2()) return &convert_avx2<From, To>;
      }
#endif
      return &convert<From, To>;
    });
  });
}

DataError unfit(ErrorFields place, const Column& from, const std::byte* row,
                std::int64_t element, DType to) {
  const std::byte* at = row + element * byte_size(from.dtype);
  const std::string value = from.dtype == DType::kUint64
                                ? text(loaded<std::uint64_t>(at))
                                : text(loaded<std::int64_t>(at));
  place.text = text("holds a value of dtype ", name(from.dtype),
                    from.shape.rank() == 0 ? "" : text(" at element ", element),
                    " that ", name(to), " cannot hold, ", value,
                    "; set jax_enable_x64 for 64-bit values, or store values that ",
                    name(to), " can hold");
  return DataError(std::move(place));
}

void convert_rows(std::string_view field, const Column& from, const Column& to,
                  std::int64_t rows, std::span<const std::int64_t> indices) {
  const Convert convert = converter(from.dtype, to.dtype);
  const std::int64_t elements = from.shape.elements();
  for (std::int64_t k = 0; k < rows; ++k) {
    const std::int64_t fitting = convert(from.row(k), to.row(k), elements);
    if (fitting == elements) continue;
    throw unfit(
        {.sample = indices[static_cast<std::size_t>(k)], .field = std::string(field)},
        from, from.row(k), fitting, to.dtype);
  }
}

}  // namespace millstream
