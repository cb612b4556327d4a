#pragma once

#include <cstddef>
#include <memory>
#include <span>
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

/// Takes the place of the process's SIGBUS handler, again where another took it since.
/// Faults that are not of a guarded copy go to the handler that was there before.
void install_guard();

/// What `guarded` returns where a copy failed and nobody knows at which address:
/// another handler took the signal, gave up its place and raised it again, as Python's
/// faulthandler does.
inline constexpr std::byte kUnknownFault{};

/// See `guarded`.
const std::byte* run_guarded(std::span<const MappedRange> ranges, void (*copy)(void*),
                             void* context);

/// Runs `copy`, which reads mapped files. Returns null, or the address in `ranges`
/// whose bytes could not be had, or that of `kUnknownFault`: the file shrank, or its
/// disk failed; then `copy` was left in the middle, so it may hold nothing that needs
/// destroying. Makes no system calls, but for seeing every now and then that the guard
/// is in its place and the signal not blocked. Any number of threads may copy at once.
template <typename Copy>
const std::byte* guarded(std::span<const MappedRange> ranges, Copy&& copy) {
  using Callable = std::remove_reference_t<Copy>;
  const void* context = std::addressof(copy);
  return run_guarded(
      ranges, [](void* callable) { (*static_cast<Callable*>(callable))(); },
      const_cast<void*>(context));
}

}  // namespace millstream
