#include "millstream/loader/loader.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "millstream/core/error.h"
#include "millstream/parallel/process.h"
#include "millstream/parallel/thread_pool.h"

namespace millstream {
namespace {

/// Several threads make a large batch together, in ranges of about this many bytes.
constexpr std::int64_t kRangeBytes = std::int64_t{1} << 19;

/// A shard that has not come for an error by then never will: XLA itself gives up on a
/// collective sooner. Forgotten before that, a late one would go on without the others.
constexpr std::chrono::seconds kLastShard{60};
/// Usually they all come within a millisecond.
constexpr std::chrono::milliseconds kShardsTimeout{2000};

Schema with_dtypes(Schema schema, std::span<const DType> dtypes) {
  if (dtypes.size() != schema.size()) {
    throw ArgumentError(text("a loader of ", schema.size(), " fields was given ",
                             dtypes.size(), " dtypes"));
  }
  for (std::size_t i = 0; i < schema.size(); ++i) schema[i].dtype = dtypes[i];
  return schema;
}

int chosen_prefetch(int asked) {
  constexpr int kDefault = 2;
  constexpr int kMost = 1 << 16;
  if (asked > kMost) {
    throw ArgumentError(text("prefetch must be at most ", kMost, ", not ", asked));
  }
  return asked >= 0 ? asked : kDefault;
}

void copy(const Batch& batch, std::size_t shard, std::span<const Column> output,
          bool* mask, std::int64_t rows) {
  for (std::size_t i = 0; i < output.size(); ++i) {
    const Column& from = batch.columns(shard)[i];
    std::memcpy(output[i].data, from.data,
                static_cast<std::size_t>(from.stride * rows));
  }
  if (mask != nullptr) {
    std::memcpy(mask, batch.mask(shard), static_cast<std::size_t>(rows));
  }
}

std::vector<RowRange> checked(std::vector<RowRange> shards, std::int64_t rows) {
  if (shards.empty()) return {{0, rows}};
  for (const RowRange& shard : shards) {
    if (shard.first < 0 || shard.count < 1 || shard.first + shard.count > rows) {
      throw ArgumentError(text("rows [", shard.first, ", ", shard.first + shard.count,
                               ") are not rows of batches of ", rows));
    }
  }
  return shards;
}

/// Throws `ArgumentError` if the batches that are made ahead, the one that is being
/// made and the one that is in use would not fit in the machine's memory.
void check_fits(const Layout& layout, int prefetch) {
  double row_bytes = 1;  // of the mask
  for (const Field& field : layout.schema()) {
    row_bytes += static_cast<double>(byte_size(field));
  }
  const double batch = row_bytes * static_cast<double>(layout.rows());
  const double memory = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) *
                        static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (batch * (prefetch + 2) <= memory) return;
  const auto gigabytes = [](double bytes) {
    return text(std::round(bytes / 1e8) / 10, " GB");
  };
  throw ArgumentError(text("batches of ", layout.rows(), " samples take ",
                           gigabytes(batch), " each, and ", prefetch + 2,
                           " of them (prefetch=", prefetch,
                           " and two more) do not fit in the ", gigabytes(memory),
                           " of memory of this machine: use smaller batches",
                           prefetch > 0 ? " or a smaller prefetch" : ""));
}

}  // namespace

Loader::Loader(std::shared_ptr<const Plan> plan, std::span<const DType> dtypes,
               LoaderOptions options, LocalShards shards)
    : plan_(std::move(plan)),
      slots_(std::make_shared<Slots>(
          Layout(with_dtypes(plan_->schema(), dtypes),
                 checked(std::move(shards.rows), plan_->batch_size())),
          static_cast<std::size_t>(chosen_prefetch(options.prefetch) + 4),
          plan_->worker_pool())),
      threads_(options.threads > 0 ? options.threads : cpu_budget()),
      prefetch_(chosen_prefetch(options.prefetch)),
      reads_ahead_(prefetch_ > 0 && !plan_->traits().immediate()),
      whole_(layout().shards()[0] == RowRange{0, plan_->batch_size()}),
      skipped_(options.budget),
      answers_(shards.devices) {
  if (options.threads < 0) {
    throw ArgumentError(text("threads must be at least 1, not ", options.threads));
  }
  check_fits(layout(), prefetch_);
  if (prefetch_ > 0) {
    prefetcher_.emplace(plan_, slots_, threads_, prefetch_);
  }
}

void Loader::make(const Position& position, const RowRange& rows,
                  std::span<const Column> output, bool* mask,
                  const CallContext& context) {
  if (!prefetcher_) plan_->prepare(position);  // nobody did before
  std::int64_t row_bytes = 1;
  for (const Column& column : output) row_bytes += column.row_bytes();
  if (plan_->traits().workers > 0 || threads_ == 1 ||
      rows.count * row_bytes < 2 * kRangeBytes) {
    plan_->row_range(position, rows.first, rows.count, output, mask, thread_memory(),
                     context);
    return;
  }
  ThreadPool& pool = shared_pool();
  pool.grow(threads_ - 1);
  const std::int64_t most = std::max<std::int64_t>(1, kRangeBytes / row_bytes);
  pool.for_ranges(
      rows.count, most, threads_ - 1, [&](std::int64_t begin, std::int64_t end) {
        std::vector<Column> here(output.begin(), output.end());
        for (Column& column : here) column.data += begin * column.stride;
        plan_->row_range(position, rows.first + begin, end - begin, here,
                         mask == nullptr ? nullptr : mask + begin, thread_memory(),
                         {nullptr, context.failures, nullptr});
      });
}

void Loader::make_in_place(const Position& position, const RowRange& rows,
                           std::span<const Column> output, bool* mask) {
  Failures failures;
  make(position, rows, output, mask, {nullptr, &failures, &cancelled_});
  skipped_.count(failures);
}

void Loader::make_timed(const Position& position, std::span<const Column> output,
                        bool* mask) {
  const auto start = std::chrono::steady_clock::now();
  make_in_place(position, {0, plan_->batch_size()}, output, mask);
  prefetcher_->record_time(std::chrono::steady_clock::now() - start);
}

bool Loader::cached(std::span<const Column> output) const {
  return reads_ahead_ && whole_ && fits(output);
}

bool Loader::fits(std::span<const Column> output) const {
  return std::ranges::equal(output, layout().schema(), {}, &Column::dtype,
                            &Field::dtype);
}

void Loader::fill(const Position& position, std::span<const Column> output,
                  bool* mask) {
  if (cancelled()) throw Cancelled("interrupted");
  delivered_.fetch_add(1, std::memory_order_relaxed);
  if (!cached(output)) {
    make_in_place(position, {0, plan_->batch_size()}, output, mask);
    return;
  }
  if (prefetcher_->is_quick()) {
    make_timed(position, output, mask);
    return;
  }
  const auto batch = wait_for_batch(position);
  skipped_.count(batch->failures());
  copy(*batch, 0, output, mask, plan_->batch_size());
}

std::shared_ptr<const Batch> Loader::wait_for_batch(const Position& position) {
  while (true) {
    auto batch = prefetcher_->get(position, true, std::chrono::milliseconds(50));
    if (cancelled()) throw Cancelled("interrupted");
    if (batch != nullptr) return batch;
  }
}

bool Loader::fill_if_ready(const Position& position, std::span<const Column> output,
                           bool* mask) {
  if (cancelled()) throw Cancelled("interrupted");
  if (!cached(output)) return false;
  if (prefetcher_->is_quick()) {
    make_timed(position, output, mask);
  } else {
    const auto batch = prefetcher_->ready(position);
    if (batch == nullptr) return false;
    skipped_.count(batch->failures());
    copy(*batch, 0, output, mask, plan_->batch_size());
  }
  delivered_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

std::size_t Loader::shard_of(const RowRange& rows) const {
  const auto found = std::ranges::find(layout().shards(), rows);
  if (found == layout().shards().end()) {
    throw ArgumentError(text("rows [", rows.first, ", ", rows.first + rows.count,
                             ") are not among those that this process makes"));
  }
  return static_cast<std::size_t>(found - layout().shards().begin());
}

Answers::Found Loader::answer(const Position& position, bool wait) {
  return answers_.get(position, wait, [&]() -> Answers::Found {
    if (cancelled()) throw Cancelled("interrupted");
    std::shared_ptr<const Batch> batch;
    const bool one_answer = plan_->traits().may_fail || !plan_->traits().immediate();
    if (one_answer && prefetcher_) {
      batch = wait ? wait_for_batch(position) : prefetcher_->ready(position);
      if (batch == nullptr) return std::nullopt;
      skipped_.count(batch->failures());
    } else if (one_answer) {
      if (!wait) return std::nullopt;
      batch = take(position, std::chrono::milliseconds(0));
      return batch;
    }
    delivered_.fetch_add(1, std::memory_order_relaxed);
    return batch;
  });
}

void Loader::fill_shard(const Position& position, const RowRange& rows,
                        std::span<const Column> output, bool* mask) {
  fill_from(*answer(position, true), position, rows, output, mask);
}

bool Loader::fill_shard_if_ready(const Position& position, const RowRange& rows,
                                 std::span<const Column> output, bool* mask) {
  const Answers::Found found = answer(position, false);
  if (found) fill_from(*found, position, rows, output, mask);
  return found.has_value();
}

void Loader::fill_from(const std::shared_ptr<const Batch>& batch,
                       const Position& position, const RowRange& rows,
                       std::span<const Column> output, bool* mask) {
  const std::size_t shard = shard_of(rows);
  if (batch != nullptr && fits(output)) {
    copy(*batch, shard, output, mask, rows.count);
  } else {
    make_in_place(position, rows, output, mask);
  }
}

std::shared_ptr<const Batch> Loader::take_for_shards(const Position& position) {
  const auto wait = [&]() -> Answers::Found {
    while (true) {
      if (cancelled()) throw Cancelled("interrupted");
      auto batch = take(position, std::chrono::milliseconds(50));
      if (batch != nullptr) return batch;
    }
  };
  const auto found = answers_.get(position, true, wait);
  // Null where a program on the CPU was the first to ask.
  return *found != nullptr ? *found : *wait();
}

std::shared_ptr<const Batch> Loader::take_if_ready(const Position& position) {
  std::shared_ptr<const Batch> batch;
  if (prefetcher_) batch = prefetcher_->ready(position);
  if (batch == nullptr) return nullptr;
  skipped_.count(batch->failures());
  delivered_.fetch_add(1, std::memory_order_relaxed);
  return batch;
}

std::shared_ptr<const Batch> Loader::take(const Position& position,
                                          std::chrono::milliseconds timeout) {
  std::shared_ptr<const Batch> batch;
  if (prefetcher_) {
    batch = prefetcher_->get(position, false, timeout);
  } else {
    auto made = slots_->take();
    const std::span<const RowRange> shards = layout().shards();
    for (std::size_t i = 0; i < shards.size(); ++i) {
      make(position, shards[i], made->columns(i), made->mask(i),
           {&made->host_values(), &made->failures(), &cancelled_});
    }
    batch = std::move(made);
  }
  if (batch == nullptr) return nullptr;
  skipped_.count(batch->failures());
  delivered_.fetch_add(1, std::memory_order_relaxed);
  return batch;
}

bool Loader::ready(const Position& position, std::chrono::milliseconds timeout) {
  if (!prefetcher_) return true;
  return prefetcher_->get(position, true, timeout) != nullptr;
}

void Skipped::count(const Failures& failures) {
  if (failures.samples().empty()) return;
  const std::lock_guard lock(mutex_);
  samples_.insert(failures.samples().begin(), failures.samples().end());
  if (budget_ < 0 || static_cast<std::int64_t>(samples_.size()) <= budget_) return;
  const auto& [sample, why] = *failures.samples().rbegin();
  throw DataError({.sample = sample,
                   .text = text("failed, and more samples have failed than may be left "
                                "out (",
                                budget_, "): ", why)});
}

std::map<std::int64_t, std::string> Skipped::samples() const {
  const std::lock_guard lock(mutex_);
  return samples_;
}

void Loader::remember(std::exception_ptr error) {
  if (error == nullptr) answers_.forget_errors(kLastShard, kShardsTimeout);
  const std::lock_guard lock(mutex_);
  last_error_ = std::move(error);
}

std::exception_ptr Loader::last_error() const {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

}  // namespace millstream
