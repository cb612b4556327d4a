#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "millstream/loader/answers.h"
#include "millstream/loader/batch.h"
#include "millstream/loader/plan.h"
#include "millstream/loader/prefetcher.h"

namespace millstream {

/// How a loader works; never what comes out of it.
struct LoaderOptions {
  int threads = 0;           // at most; 0 for all that the process may use
  int prefetch = -1;         // batches made ahead; -1 for what suits the source
  std::int64_t budget = -1;  // samples that may be left out; -1 for any number
};

/// The samples that the batches handed out so far have left out, each counted once.
class Skipped {
 public:
  explicit Skipped(std::int64_t budget) : budget_(budget) {}

  /// Counts those of a batch that is handed out; throws where they are too many.
  void count(const Failures& failures);
  std::map<std::int64_t, std::string> samples() const;

 private:
  const std::int64_t budget_;
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::string> samples_;
};

/// The shards of every batch that this process makes, and how many of its devices ask
/// for them.
struct LocalShards {
  std::vector<RowRange> rows;  // of each shard; none for whole batches
  int devices = 1;
};

/// A plan at work: makes batches ahead, hands them out, and remembers what went wrong.
/// Any number of threads may ask at once.
class Loader {
 public:
  /// `dtypes` are those of the batches that `take` gives, one a field of the plan.
  /// Throws `ArgumentError` where `shards` names rows that a batch does not have.
  Loader(std::shared_ptr<const Plan> plan, std::span<const DType> dtypes,
         LoaderOptions options, LocalShards shards = {});

  const Plan& plan() const noexcept { return *plan_; }
  const Layout& layout() const noexcept { return slots_->layout(); }
  int threads() const noexcept { return threads_; }
  int prefetch() const noexcept { return prefetch_; }

  /// Whether batches are read ahead for `fill` too: not where reading is but a copy.
  bool reads_ahead() const noexcept { return reads_ahead_; }

  /// Writes the batch at `position` to memory of the caller's; `mask` may be null.
  void fill(const Position& position, std::span<const Column> output, bool* mask);

  /// The same if it can be had at once; else false and nothing done.
  bool fill_if_ready(const Position& position, std::span<const Column> output,
                     bool* mask);

  /// Writes one shard of the batch, `rows`, to memory of the caller's. All devices that
  /// ask for one batch get the same answer, which is made once.
  void fill_shard(const Position& position, const RowRange& rows,
                  std::span<const Column> output, bool* mask);

  /// The same if it can be had at once; else false and nothing done.
  bool fill_shard_if_ready(const Position& position, const RowRange& rows,
                           std::span<const Column> output, bool* mask);

  /// The batch at `position` in memory of its own, or null if it is not done within
  /// `timeout`.
  std::shared_ptr<const Batch> take(const Position& position,
                                    std::chrono::milliseconds timeout);

  /// Whether the batch at `position` has been made ahead, or is within `timeout`, so
  /// that `fill` only copies. True where nothing is made ahead.
  bool ready(const Position& position, std::chrono::milliseconds timeout);
  /// The same if it is made already, else null; never waits for it.
  std::shared_ptr<const Batch> take_if_ready(const Position& position);

  /// No iterator continues at `position`: batches made ahead from there may be dropped.
  void abandon(const Position& position) {
    if (prefetcher_) prefetcher_->abandon(position);
  }

  /// The batch at `position`, one for all shards that ask for it. Never null; throws
  /// `Cancelled` when the loader is interrupted.
  std::shared_ptr<const Batch> take_for_shards(const Position& position);

  /// Which of the layout's shards these rows are; throws `ArgumentError` if none.
  std::size_t shard_of(const RowRange& rows) const;

  /// Batches given by `take` that someone still holds.
  std::int64_t live() const { return slots_->live(); }

  /// Batches handed out so far, by either way.
  std::int64_t delivered() const noexcept {
    return delivered_.load(std::memory_order_relaxed);
  }

  /// The samples that batches handed out so far have left out, and why.
  std::map<std::int64_t, std::string> skipped() const { return skipped_.samples(); }

  /// Makes every `fill` throw `Cancelled` until `resume`. Safe in a signal handler.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed); }
  void resume() noexcept { cancelled_.store(false, std::memory_order_relaxed); }

  /// What the last `fill` that failed inside jit threw.
  void remember(std::exception_ptr error);
  std::exception_ptr last_error() const;

 private:
  void make(const Position& position, const RowRange& rows,
            std::span<const Column> output, bool* mask, const CallContext& context);
  void make_in_place(const Position& position, const RowRange& rows,
                     std::span<const Column> output, bool* mask);
  std::shared_ptr<const Batch> wait_for_batch(const Position& position);
  Answers::Found answer(const Position& position, bool wait);
  void make_timed(const Position& position, std::span<const Column> output, bool* mask);
  bool cached(std::span<const Column> output) const;
  bool fits(std::span<const Column> output) const;
  void fill_from(const std::shared_ptr<const Batch>& batch, const Position& position,
                 const RowRange& rows, std::span<const Column> output, bool* mask);

  const std::shared_ptr<const Plan> plan_;
  const std::shared_ptr<Slots> slots_;
  const int threads_;
  const int prefetch_;
  const bool reads_ahead_;
  const bool whole_;
  std::atomic<bool> cancelled_{false};
  std::atomic<std::int64_t> delivered_{0};
  mutable std::mutex mutex_;
  std::exception_ptr last_error_;
  Skipped skipped_;
  Answers answers_;
  std::optional<Prefetcher> prefetcher_;  // last: its threads use the members above
};

}  // namespace millstream
