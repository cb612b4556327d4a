#include "millstream/loader/workshop.h"

#include <algorithm>
#include <utility>

#include "millstream/core/error.h"
#include "millstream/parallel/process.h"

namespace millstream {

bool Ticket::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

std::shared_ptr<const Batch> Ticket::wait(std::chrono::milliseconds patience) const {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, patience, [this] { return done_; })) return nullptr;
  if (error_) std::rethrow_exception(error_);
  return batch_;
}

Workshop::Workshop(std::shared_ptr<Maker> maker, Schema schema, std::int64_t rows,
                   int at_once)
    : maker_(std::move(maker)),
      slots_(std::make_shared<Slots>(Layout(std::move(schema), rows),
                                     static_cast<std::size_t>(std::max(at_once, 0) + 4),
                                     maker_.get())),
      at_once_(at_once),
      generation_(fork_generation()),
      waiting_(0) {
  if (rows < 1) throw ArgumentError(text("a batch has at least one row, not ", rows));
  if (at_once < 1) {
    throw ArgumentError(text("at least one batch is made at once, not ", at_once));
  }
}

Workshop::~Workshop() { close(); }

void Workshop::close() noexcept {
  closed_ = true;
  maker_->close();
}

std::shared_ptr<const Ticket> Workshop::begin(std::vector<std::int64_t> indices,
                                              std::vector<std::uint64_t> seeds) {
  if (generation_ != fork_generation()) {
    throw ArgumentError("the threads of this workshop stayed in the parent process");
  }
  if (static_cast<std::int64_t>(indices.size()) > rows()) {
    throw ArgumentError(
        text("a batch has ", rows(), " rows, not ", indices.size(), " of them"));
  }
  if (!seeds.empty() && seeds.size() != indices.size()) {
    throw ArgumentError(
        text(seeds.size(), " seeds do not fit ", indices.size(), " samples"));
  }
  auto ticket = std::make_shared<Ticket>(slots_);
  if (waiting_.threads() < at_once_) waiting_.grow(waiting_.threads() + 1);
  waiting_.submit(
      [this, ticket, indices = std::move(indices), seeds = std::move(seeds)] {
        std::shared_ptr<Batch> batch;
        std::exception_ptr error;
        try {
          if (closed_) throw Closed("the workshop was closed");
          batch = slots_->take();
          if (!indices.empty()) {
            maker_->make({indices,
                          seeds,
                          {},
                          batch->columns(),
                          {&batch->beside(), nullptr, &closed_},
                          0});
          }
          std::fill_n(batch->mask(), rows(), false);
          std::fill_n(batch->mask(), indices.size(), true);
        } catch (...) {
          error = std::current_exception();
          batch.reset();
        }
        const std::lock_guard lock(ticket->mutex_);
        ticket->done_ = true;
        ticket->batch_ = std::move(batch);
        ticket->error_ = std::move(error);
        ticket->changed_.notify_all();
      });
  return ticket;
}

}  // namespace millstream
