#pragma once

#include <algorithm>
#include <cstdint>

namespace millstream {

/// The cost of reading from a source or of applying a transform, and the random numbers
/// of a source. The plan combines the traits of its source and stages to decide which
/// threads make batches, and when.
struct Traits {
  /// The call blocks the calling thread on something other than its own CPU, e.g. a
  /// disk or a worker pool.
  bool waits = false;
  /// The call costs about as much as copying the bytes.
  bool cheap = true;
  /// The call may throw for some rows or at some times: files, functions, and
  /// conversions that check values.
  bool may_fail = false;
  /// The number of consecutive samples that are stored together and are best read
  /// together; 0 if each sample can be read alone.
  std::int64_t blocks = 0;
  /// The number of workers that do the work; 0 if the calling thread does it.
  int workers = 0;
  /// The workers cannot be replaced by the calling thread: there are several, they are
  /// processes, or they have a time limit.
  bool needs_workers = false;
  /// Only for sources: samples depend on the seed and the epoch.
  bool draws = false;
  /// Only for sources: how many stage numbers of `StageKind::kFunction` they use. Later
  /// functions use the numbers after these.
  std::uint32_t function_numbers = 0;

  /// Whether the calling thread should do the work itself, because handing it to
  /// another thread would take longer.
  bool immediate() const noexcept { return cheap && !waits; }

  bool operator==(const Traits&) const = default;
};

/// The traits of doing `a` and then `b`.
inline Traits combined(const Traits& a, const Traits& b) noexcept {
  return {a.waits || b.waits,       a.cheap && b.cheap,
          a.may_fail || b.may_fail, std::max(a.blocks, b.blocks),
          a.workers + b.workers,    a.needs_workers || b.needs_workers,
          a.draws || b.draws,       std::max(a.function_numbers, b.function_numbers)};
}

}  // namespace millstream
