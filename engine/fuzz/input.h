#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "millstream/core/error.h"

namespace millstream {

/// The input of libFuzzer as bytes.
inline std::span<const std::byte> fuzzed(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}

/// Runs a parser. It may reject its input only by throwing `DataError`.
template <typename Parse>
int accept_or_refuse(const Parse& parse) {
  try {
    parse();
  } catch (const DataError&) {
  }
  return 0;
}

/// Aborts unless a guarantee of the parser holds.
inline void require(bool kept) {
  if (!kept) __builtin_trap();
}

}  // namespace millstream
