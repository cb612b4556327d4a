#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "millstream/core/column.h"
#include "millstream/core/memory.h"
#include "millstream/core/request.h"
#include "millstream/core/traits.h"
#include "millstream/core/worker_pool.h"
#include "millstream/order/schedule.h"
#include "millstream/source/source.h"
#include "millstream/transform/chain.h"

namespace millstream {

using Transforms = std::vector<std::shared_ptr<const Transform>>;

/// The whole line, assembled and validated: a batch is a pure function of a plan and a
/// position. Plans are immutable: any number of threads may make batches at once.
class Plan {
 public:
  /// `before` see samples; `after` see the rows of batches, padding included.
  /// With `skip` a row that fails the same way every time is zero and its mask False.
  Plan(std::shared_ptr<const Source> source, Schedule schedule, Transforms before,
       Transforms after, bool skip = false);

  /// The fields of one row of a batch.
  const Schema& schema() const noexcept { return chain_.output(); }
  const Schedule& schedule() const noexcept { return schedule_; }
  const Source& source() const noexcept { return *source_; }
  std::int64_t batch_size() const noexcept { return schedule_.batch_size(); }

  /// What making a batch takes: the traits of the source and of all stages.
  const Traits& traits() const noexcept { return traits_; }

  /// The worker pool in whose memory batches are best placed: that of the last stage
  /// that has one, else of the source. Null if there is none.
  WorkerPool* worker_pool() const noexcept { return worker_pool_; }
  /// Whether the source gives rows to a worker pool, which should get those of earlier
  /// batches first.
  bool queues() const noexcept { return source_->traits().workers > 0; }

  /// What a state must fit to be resumed: the source's shape and the order, and no
  /// paths, times, pointers or thread counts.
  std::uint64_t digest() const noexcept { return digest_; }

  /// Makes the batch at `position`, the specification of everything that is faster.
  /// Columns are `batch_size()` rows; `mask` too, or null.
  void batch(const Position& position, std::span<const Column> output, bool* mask,
             const CallContext& context = {}) const;

  /// Rows [first, first + count) of that batch, written to the same rows of `output`.
  void rows(const Position& position, std::int64_t first, std::int64_t count,
            std::span<const Column> output, bool* mask, Memory& memory,
            const CallContext& context = {}) const;

  /// The same rows, written to rows [0, count) of `output` and `mask`.
  void row_range(const Position& position, std::int64_t first, std::int64_t count,
                 std::span<const Column> output, bool* mask, Memory& memory,
                 const CallContext& context = {}) const;

  /// Bytes of samples asked of the source so far, as its schema counts them.
  std::int64_t bytes_read() const noexcept {
    return samples_read_.load(std::memory_order_relaxed) * sample_bytes_;
  }

  /// Prepares the source for the batch at `position`, which will be made soon.
  void prepare(const Position& position) const;

 private:
  void valid_rows(const Request& request, Rows& output) const;
  void rows_skipping_failures(const Position& position, const Request& request,
                              Rows& output, bool* mask) const;
  void padding(const Position& position, std::int64_t count, Rows& output) const;

  std::shared_ptr<const Source> source_;
  Schedule schedule_;
  Chain chain_;
  Chain tail_;  // the stages after batching alone: what padding goes through
  std::uint64_t digest_;
  bool skip_;
  Traits traits_;
  WorkerPool* worker_pool_;
  std::int64_t sample_bytes_ = 0;
  mutable std::atomic<std::int64_t> samples_read_{0};
};

}  // namespace millstream
