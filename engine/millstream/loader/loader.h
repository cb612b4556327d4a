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

/// Options that change how fast batches are made, never their content.
struct LoaderOptions {
  int threads = 0;           // at most; 0: as many as the process may use
  int prefetch = -1;         // batches made ahead per stream; -1: the default
  std::int64_t budget = -1;  // samples that may be skipped; -1: no limit
};

/// The samples that delivered batches have skipped. Each sample counts once.
/// Thread-safe.
class Skipped {
 public:
  explicit Skipped(std::int64_t budget) : budget_(budget) {}

  /// Adds the skipped samples of a delivered batch. Throws `DataError` if there are now
  /// more than `budget`.
  void count(const Failures& failures);
  std::map<std::int64_t, std::string> samples() const;

 private:
  const std::int64_t budget_;
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::string> samples_;
};

/// The shards of each batch that this process makes, and how many of its devices
/// request them.
struct LocalShards {
  std::vector<RowRange> rows;  // of each shard; empty: one shard with the whole batch
  int devices = 1;
};

/// Which batch a caller wants, and where the loader writes it.
struct DeliveryRequest {
  static constexpr std::chrono::milliseconds kNoTimeout{-1};

  Position position;
  /// Where the loader writes the rows. If empty, the batch stays in its slot.
  std::span<const Column> output = {};
  /// One value for each row of `output`, or null.
  bool* mask = nullptr;
  /// Only these rows. All shards that request a batch get the same answer.
  std::optional<RowRange> shard = {};
  /// How long to wait for the batch; 0 to deliver it only if it is ready.
  std::chrono::milliseconds timeout = kNoTimeout;
  /// Only makes the batch, so that a later request need not wait.
  bool keep = false;
  /// Does not count the batch as delivered until `Loader::hand_out`.
  bool held_back = false;
  /// The calling thread may call functions outside the engine, instead of a worker. The
  /// timeout does not limit such a call.
  bool may_call = false;
};

/// The result of a request.
struct Delivered {
  bool done = false;  // false: the timeout expired and nothing was written
  std::shared_ptr<const Batch> batch = {};  // null if the rows were written to `output`

  explicit operator bool() const noexcept { return done; }
};

/// Makes the batches of a plan ahead of time, delivers them and keeps the last error.
/// All methods are thread-safe.
class Loader {
 public:
  /// `dtypes` are the dtypes of batches in slots, one per field of the plan. Throws
  /// `ArgumentError` if an option is out of range or `shards` names rows outside a
  /// batch.
  Loader(std::shared_ptr<const Plan> plan, std::span<const DType> dtypes,
         LoaderOptions options, LocalShards shards = {});

  const Plan& plan() const noexcept { return *plan_; }
  const Layout& layout() const noexcept { return slots_->layout(); }
  /// The traits of the plan. Batches may also fail if they hold 64-bit integers of the
  /// plan as 32-bit ones.
  const Traits& traits() const noexcept { return traits_; }
  int threads() const noexcept { return threads_; }
  int prefetch() const noexcept { return prefetch_; }

  /// Delivers a batch, or one shard of it. Throws the error of the batch. While the
  /// loader is cancelled, throws `Cancelled`, unless the request is for a whole batch
  /// in its slot. A shard request without `output` gets the batch with all local
  /// shards.
  Delivered deliver(const DeliveryRequest& request);

  /// Tells the loader that no iterator continues at `position`. It may drop the batches
  /// that it made ahead from there.
  void abandon(const Position& position) {
    if (prefetcher_) prefetcher_->abandon(position);
  }

  /// The index of the shard with these rows. Throws `ArgumentError` if there is none.
  std::size_t shard_of(const RowRange& rows) const;

  /// How many slots are in use.
  std::int64_t live() const { return slots_->live(); }

  /// Counts a batch as delivered that a request with `held_back` has written.
  void hand_out(const Position& position) noexcept;

  /// How many batches were delivered so far.
  std::int64_t delivered() const noexcept {
    return delivered_.load(std::memory_order_relaxed);
  }

  /// How many samples the delivered batches had, without padding.
  std::int64_t samples_delivered() const noexcept {
    return samples_delivered_.load(std::memory_order_relaxed);
  }

  /// How many bytes the source has read so far, without batches that are held back.
  std::int64_t bytes_read() const noexcept { return plan_->bytes_read(held_back()); }

  /// How many samples were written by requests with `held_back` and not handed out.
  std::int64_t held_back() const noexcept {
    return held_back_.load(std::memory_order_relaxed);
  }

  /// The samples that delivered batches have skipped, each with its error message.
  std::map<std::int64_t, std::string> skipped() const { return skipped_.samples(); }

  /// Makes deliveries throw `Cancelled` until `resume`, except those of whole batches
  /// in their slots. Safe in a signal handler.
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed); }
  void resume() noexcept { cancelled_.store(false, std::memory_order_relaxed); }

  /// Stores the error of a delivery inside jit, for `last_error`. Null clears it, and
  /// waits until all shards have received the errors of earlier deliveries.
  void remember(std::exception_ptr error);
  std::exception_ptr last_error() const;

 private:
  void make(const Position& position, const RowRange& rows,
            std::span<const Column> output, bool* mask, const CallContext& context);
  void write(const DeliveryRequest& request, const RowRange& rows);
  Delivered deliver_shard(const DeliveryRequest& request);
  /// Returns the batch in its slot, or null after the timeout. With `keep` the batch
  /// stays in the cache.
  std::shared_ptr<const Batch> in_slot(const DeliveryRequest& request, bool keep);
  std::shared_ptr<const Batch> prefetched(const DeliveryRequest& request, bool keep);
  bool fits(std::span<const Column> output) const;
  void count(const DeliveryRequest& request) noexcept;

  const std::shared_ptr<const Plan> plan_;
  const std::shared_ptr<Slots> slots_;
  const Traits traits_;
  const int threads_;
  const int prefetch_;
  const bool reads_ahead_;
  const bool whole_;
  std::atomic<bool> cancelled_{false};
  std::atomic<std::int64_t> delivered_{0};
  std::atomic<std::int64_t> samples_delivered_{0};
  std::atomic<std::int64_t> held_back_{0};  // samples that `hand_out` has not counted
  mutable std::mutex mutex_;
  std::exception_ptr last_error_;
  Skipped skipped_;
  Answers answers_;
  std::optional<Prefetcher> prefetcher_;  // last: its threads use the members above
};

}  // namespace millstream
