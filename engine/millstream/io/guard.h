#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace millstream {

/// The bytes of one mapped file.
struct MappedRange {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;

  bool holds(const std::byte* address) const noexcept {
    return begin <= address && address < end;
  }
};

/// Installs the guard as the SIGBUS handler of the process, unless it is installed
/// already. Faults outside guarded copies go to the previous handler.
void install_guard();

/// Implements `guarded`.
const std::byte* run_guarded(const MappedRange& range, void (*copy)(void*),
                             void* context);

/// Runs `copy`, which reads `range`. Returns null, or the address that could not be
/// read because the file shrank or its disk failed. In that case `copy` stops without
/// running destructors, so it must not own anything. Requires `install_guard` and a
/// thread that does not block SIGBUS. Thread-safe; makes no system calls.
template <typename Copy>
const std::byte* guarded(const MappedRange& range, Copy&& copy) {
  using Callable = std::remove_reference_t<Copy>;
  const void* context = std::addressof(copy);
  return run_guarded(
      range, [](void* callable) { (*static_cast<Callable*>(callable))(); },
      const_cast<void*>(context));
}

}  // namespace millstream
