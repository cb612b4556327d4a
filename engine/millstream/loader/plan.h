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

/// A validated pipeline: a source, a schedule and transforms. Each batch is a pure
/// function of the plan and a position. Plans are immutable; all methods are
/// thread-safe.
class Plan {
 public:
  /// Stages in `before` transform samples. Stages in `after` transform the rows of
  /// batches, including padding. With `skip`, a row that always fails is zero and its
  /// mask is False. `filter` is a hash of the samples that a filter kept in the source,
  /// or 0 without a filter.
  Plan(std::shared_ptr<const Source> source, Schedule schedule, Transforms before,
       Transforms after, bool skip = false, std::uint64_t filter = 0);

  /// The fields of a batch, without the batch axis.
  const Schema& schema() const noexcept { return chain_.output(); }
  const Schedule& schedule() const noexcept { return schedule_; }
  const Source& source() const noexcept { return *source_; }
  std::int64_t batch_size() const noexcept { return schedule_.batch_size(); }

  /// The combined traits of the source and of all stages.
  const Traits& traits() const noexcept { return traits_; }

  /// The worker pool whose memory is best for batches: the pool of the last stage that
  /// has one, or else of the source. Null if there is none.
  WorkerPool* worker_pool() const noexcept { return worker_pool_; }
  /// Whether the source itself uses a worker pool. The pool must then get the rows of
  /// earlier batches first.
  bool queues() const noexcept { return source_->traits().workers > 0; }

  /// Identifies the pipelines that can resume the same states. Depends on the size and
  /// the fields of the source, the filter, the order and the batching, and on nothing
  /// else.
  std::uint64_t digest() const noexcept { return digest_; }

  /// Makes the batch at `position` on the calling thread. This function specifies the
  /// content of every batch. Columns have `batch_size()` rows; so has `mask`, unless it
  /// is null.
  void batch(const Position& position, std::span<const Column> output, bool* mask,
             const CallContext& context = {}) const;

  /// Makes rows [first, first + count) of the batch and writes them to the same rows of
  /// `output` and `mask`.
  void rows(const Position& position, std::int64_t first, std::int64_t count,
            std::span<const Column> output, bool* mask, Memory& memory,
            const CallContext& context = {}) const;

  /// Makes the same rows and writes them to rows [0, count) of `output` and `mask`.
  void row_range(const Position& position, std::int64_t first, std::int64_t count,
                 std::span<const Column> output, bool* mask, Memory& memory,
                 const CallContext& context = {}) const;

  /// How many bytes the source has read so far: samples times their size in its schema.
  /// `uncounted` samples are left out.
  std::int64_t bytes_read(std::int64_t uncounted = 0) const noexcept {
    return (samples_read_.load(std::memory_order_relaxed) - uncounted) * sample_bytes_;
  }

  /// Tells the source that the batch at `position` will be read soon.
  void prepare(const Position& position) const;

 private:
  void valid_rows(const Request& request, Rows& output) const;
  void rows_skipping_failures(const Position& position, const Request& request,
                              Rows& output, bool* mask) const;
  void padding(const Position& position, std::int64_t count, Rows& output) const;

  std::shared_ptr<const Source> source_;
  Schedule schedule_;
  Chain chain_;
  Chain tail_;  // the stages after batching, which also transform padding
  std::uint64_t digest_;
  bool skip_;
  bool large_;  // whether a batch leaves the CPU's caches before it is used
  Traits traits_;
  WorkerPool* worker_pool_;
  std::int64_t sample_bytes_ = 0;
  mutable std::atomic<std::int64_t> samples_read_{0};
};

}  // namespace millstream
