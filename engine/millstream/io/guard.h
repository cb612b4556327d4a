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

/// Makes the guard the process's SIGBUS handler unless it is already. Faults outside of
/// guarded copies go to the handler that was there before.
void install_guard();

/// See `guarded`.
const std::byte* run_guarded(const MappedRange& range, void (*copy)(void*),
                             void* context);

/// Runs `copy`, which reads `range`. Returns null, or the address whose bytes could not
/// be read: the file shrank, or its disk failed. Then `copy` was left in the middle, so
/// it may hold nothing that needs destroying. Needs `install_guard` and a thread that
/// does not block SIGBUS; makes no system calls. Any number of threads may copy at
/// once.
template <typename Copy>
const std::byte* guarded(const MappedRange& range, Copy&& copy) {
  using Callable = std::remove_reference_t<Copy>;
  const void* context = std::addressof(copy);
  return run_guarded(
      range, [](void* callable) { (*static_cast<Callable*>(callable))(); },
      const_cast<void*>(context));
}

}  // namespace millstream
