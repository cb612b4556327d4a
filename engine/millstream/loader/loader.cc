#include "millstream/loader/loader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "millstream/core/error.h"
#include "millstream/parallel/process.h"
#include "millstream/parallel/thread_pool.h"

namespace millstream {
namespace {

/// A batch is shared out to several threads in parts of about this many bytes.
constexpr std::int64_t kPartBytes = std::int64_t{1} << 19;

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
  return asked >= 0 ? asked : kDefault;
}

void copy(const Batch& batch, std::span<const Column> output, bool* mask,
          std::int64_t rows) {
  for (std::size_t i = 0; i < output.size(); ++i) {
    const Column& from = batch.columns()[i];
    std::memcpy(output[i].data, from.data,
                static_cast<std::size_t>(from.stride * rows));
  }
  if (mask != nullptr) std::memcpy(mask, batch.mask(), static_cast<std::size_t>(rows));
}

}  // namespace

Loader::Loader(std::shared_ptr<const Plan> plan, std::span<const DType> dtypes,
               Knobs knobs)
    : plan_(std::move(plan)),
      slots_(std::make_shared<Slots>(
          Layout(with_dtypes(plan_->schema(), dtypes), plan_->batch_size()),
          static_cast<std::size_t>(chosen_prefetch(knobs.prefetch) + 4),
          plan_->maker())),
      threads_(knobs.threads > 0 ? knobs.threads : cpu_budget()),
      prefetch_(chosen_prefetch(knobs.prefetch)),
      reads_ahead_(prefetch_ > 0 && !plan_->resident()),
      skipped_(knobs.budget) {
  if (knobs.threads < 0) {
    throw ArgumentError(text("threads must be at least 1, not ", knobs.threads));
  }
  if (prefetch_ > 0) {
    prefetcher_.emplace(plan_, slots_, threads_, prefetch_, &skipped_);
  }
}

void Loader::make(const Position& position, std::span<const Column> output, bool* mask,
                  Beside* beside) {
  std::int64_t row_bytes = 1;
  for (const Column& column : output) row_bytes += column.row_bytes();
  const std::int64_t rows = plan_->batch_size();
  const bool waits = plan_->maker() != nullptr;
  if (waits || threads_ == 1 || rows * row_bytes < 2 * kPartBytes) {
    plan_->batch(position, output, mask, {beside, &skipped_, &cancelled_});
    return;
  }
  ThreadPool& pool = shared_pool();
  pool.grow(threads_ - 1);
  const std::int64_t grain = std::max<std::int64_t>(1, kPartBytes / row_bytes);
  pool.for_ranges(rows, grain, threads_ - 1, [&](std::int64_t begin, std::int64_t end) {
    plan_->rows(position, begin, end - begin, output, mask, thread_memory(),
                {nullptr, &skipped_, nullptr});
  });
}

void Loader::make_noting(const Position& position, std::span<const Column> output,
                         bool* mask) {
  const auto start = std::chrono::steady_clock::now();
  make(position, output, mask);
  prefetcher_->note(std::chrono::steady_clock::now() - start);
}

bool Loader::cached(std::span<const Column> output) const {
  return reads_ahead_ && std::ranges::equal(output, layout().schema(), {},
                                            &Column::dtype, &Field::dtype);
}

void Loader::fill(const Position& position, std::span<const Column> output,
                  bool* mask) {
  if (cancelled()) throw Cancelled("interrupted");
  delivered_.fetch_add(1, std::memory_order_relaxed);
  if (!cached(output)) {
    make(position, output, mask);
    return;
  }
  if (prefetcher_->is_quick()) {
    make_noting(position, output, mask);
    return;
  }
  shared_pool().grow(threads_);
  while (true) {
    const auto batch = prefetcher_->get(position, true, std::chrono::milliseconds(50));
    if (cancelled()) throw Cancelled("interrupted");
    if (batch == nullptr) continue;
    copy(*batch, output, mask, plan_->batch_size());
    return;
  }
}

bool Loader::fill_if_ready(const Position& position, std::span<const Column> output,
                           bool* mask) {
  if (cancelled()) throw Cancelled("interrupted");
  if (!cached(output)) return false;
  if (prefetcher_->is_quick()) {
    make_noting(position, output, mask);
  } else {
    const auto batch = prefetcher_->ready(position);
    if (batch == nullptr) return false;
    copy(*batch, output, mask, plan_->batch_size());
  }
  delivered_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

std::shared_ptr<const Batch> Loader::take(const Position& position,
                                          std::chrono::milliseconds patience) {
  std::shared_ptr<const Batch> batch;
  if (prefetcher_) {
    shared_pool().grow(threads_);
    batch = prefetcher_->get(position, false, patience);
  } else {
    auto made = slots_->take();
    make(position, made->columns(), made->mask(), &made->beside());
    batch = std::move(made);
  }
  if (batch != nullptr) delivered_.fetch_add(1, std::memory_order_relaxed);
  return batch;
}

void Skipped::skipped(std::int64_t sample, const Error& error) {
  const std::lock_guard lock(mutex_);
  samples_.emplace(sample, error.what());
  if (budget_ < 0 || static_cast<std::int64_t>(samples_.size()) <= budget_) return;
  throw DataError(text("more samples failed than may be left out (", budget_,
                       "); the last is sample ", sample, ": ", error.what()));
}

std::map<std::int64_t, std::string> Skipped::samples() const {
  const std::lock_guard lock(mutex_);
  return samples_;
}

void Loader::remember(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  last_error_ = std::move(error);
}

std::exception_ptr Loader::last_error() const {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

}  // namespace millstream
