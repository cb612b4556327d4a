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

/// What a caller wants of a batch, and where it goes.
struct DeliveryRequest {
  static constexpr std::chrono::milliseconds kNoTimeout{-1};

  Position position;
  std::span<const Column> output = {};  // written here; none: it stays in its slot
  bool* mask = nullptr;                 // of the rows of `output`, or null
  std::optional<RowRange> shard = {};   // these rows; all shards get one answer
  std::chrono::milliseconds timeout = kNoTimeout;  // 0: only if nobody has to wait
  bool keep = false;  // only make sure that a later request need not wait
};

/// What became of a request.
struct Delivered {
  bool done = false;  // false: it took longer than the timeout, and nothing was written
  std::shared_ptr<const Batch> batch = {};  // null where rows went to `output`

  explicit operator bool() const noexcept { return done; }
};

/// A plan at work: makes batches ahead, hands them out, and remembers what went wrong.
/// Any number of threads may ask at once.
class Loader {
 public:
  /// `dtypes` are those of the batches in slots, one for each field of the plan.
  /// Throws `ArgumentError` where `shards` names rows that a batch does not have.
  Loader(std::shared_ptr<const Plan> plan, std::span<const DType> dtypes,
         LoaderOptions options, LocalShards shards = {});

  const Plan& plan() const noexcept { return *plan_; }
  const Layout& layout() const noexcept { return slots_->layout(); }
  int threads() const noexcept { return threads_; }
  int prefetch() const noexcept { return prefetch_; }

  /// Delivers a batch, or one shard of it. Throws the error of the batch, and
  /// `Cancelled` while the loader is interrupted unless the batch stays in its slot.
  /// Without `output` a shard's request gets the batch with all local shards.
  Delivered deliver(const DeliveryRequest& request);

  /// No iterator continues at `position`: batches made ahead from there may be dropped.
  void abandon(const Position& position) {
    if (prefetcher_) prefetcher_->abandon(position);
  }

  /// Which of the layout's shards these rows are; throws `ArgumentError` if none.
  std::size_t shard_of(const RowRange& rows) const;

  /// Batches delivered in their slots that someone still holds.
  std::int64_t live() const { return slots_->live(); }

  /// Batches delivered so far.
  std::int64_t delivered() const noexcept {
    return delivered_.load(std::memory_order_relaxed);
  }

  /// The samples that batches handed out so far have left out, and why.
  std::map<std::int64_t, std::string> skipped() const { return skipped_.samples(); }

  /// Makes every delivery to memory of the caller throw `Cancelled` until `resume`.
  /// Safe in a signal handler.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed); }
  void resume() noexcept { cancelled_.store(false, std::memory_order_relaxed); }

  /// The error of the last delivery that failed inside jit.
  void remember(std::exception_ptr error);
  std::exception_ptr last_error() const;

 private:
  void make(const Position& position, const RowRange& rows,
            std::span<const Column> output, bool* mask, const CallContext& context);
  void write(const DeliveryRequest& request, const RowRange& rows);
  Delivered deliver_shard(const DeliveryRequest& request);
  /// The batch in its slot, or null after the timeout. With `keep` it stays in the
  /// cache.
  std::shared_ptr<const Batch> in_slot(const DeliveryRequest& request, bool keep);
  std::shared_ptr<const Batch> prefetched(const DeliveryRequest& request, bool keep);
  bool fits(std::span<const Column> output) const;

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
