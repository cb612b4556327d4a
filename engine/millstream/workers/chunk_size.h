#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace millstream {

/// How many rows to give a worker in one chunk: enough that handing out costs little,
/// few enough that all workers have some. Learns what a row costs. Thread-safe.
class ChunkSize {
 public:
  /// `concurrency` batches are being made, including this one.
  std::int64_t rows_per_chunk(std::int64_t rows, int workers,
                              int concurrency = 1) const noexcept {
    const std::int64_t row_ns = row_ns_.load(std::memory_order_relaxed);
    const std::int64_t share =
        std::max<std::int64_t>((rows + workers - 1) / workers, 1);
    if (row_ns == 0) return share;
    // Cheap rows: each worker makes whole batches, one after the other.
    if (rows * row_ns < kWholeNs) return rows;
    // There are enough batches for each worker to have one, and one to follow.
    if (rows * row_ns < kChunkNs && concurrency > workers) return rows;
    // The same number of chunks for each worker: none is idle at the end.
    const std::int64_t chunks =
        std::max<std::int64_t>((share * row_ns + kChunkNs / 2) / kChunkNs, 1);
    return (share + chunks - 1) / chunks;
  }
  /// Whether a chunk of so many rows is made so fast that waiting for it costs little.
  bool is_short(std::int64_t rows) const noexcept {
    const std::int64_t row_ns = row_ns_.load(std::memory_order_relaxed);
    return row_ns > 0 && rows * row_ns < kShortNs;
  }
  /// So many rows were made in this time.
  void record(std::int64_t rows, std::chrono::nanoseconds taken) noexcept {
    const std::int64_t before = row_ns_.load(std::memory_order_relaxed);
    const std::int64_t now = taken.count() / std::max<std::int64_t>(rows, 1);
    row_ns_.store(before == 0 ? now : before + (now - before) / 4,
                  std::memory_order_relaxed);
  }

 private:
  static constexpr std::int64_t kChunkNs = 32'000'000;
  static constexpr std::int64_t kShortNs = 8'000'000;
  static constexpr std::int64_t kWholeNs = 1'000'000;
  std::atomic<std::int64_t> row_ns_{0};
};

}  // namespace millstream
