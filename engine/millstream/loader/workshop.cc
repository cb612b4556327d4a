#include "millstream/loader/workshop.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
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
  if (waiting_.threads() < at_once_ && waiting_.grow(waiting_.threads() + 1) == 0) {
    throw ThreadError(text("the first of ", at_once_, " threads that wait for workers"),
                      std::generic_category().message(EAGAIN));
  }
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({ticket, std::move(indices), std::move(seeds)});
  }
  waiting_.submit([this] { make_next(); });
  return ticket;
}

void Workshop::make_next() {
  std::unique_lock turn(turns_);
  Begun begun;
  {
    const std::lock_guard lock(mutex_);
    begun = std::move(queue_.front());
    queue_.pop_front();
  }
  if (begun.ticket.use_count() == 1) return;  // nobody waits for it any more
  std::shared_ptr<Batch> batch;
  std::exception_ptr error;
  try {
    batch = made(begun, turn);
  } catch (...) {
    error = std::current_exception();
  }
  Ticket& ticket = *begun.ticket;
  const std::lock_guard lock(ticket.mutex_);
  ticket.done_ = true;
  ticket.batch_ = std::move(batch);
  ticket.error_ = std::move(error);
  ticket.changed_.notify_all();
}

std::shared_ptr<Batch> Workshop::made(const Begun& begun,
                                      std::unique_lock<std::mutex>& turn) {
  if (closed_) throw Closed("the workshop was closed");
  auto batch = slots_->take();
  if (!begun.indices.empty()) {
    maker_->make({begun.indices,
                  begun.seeds,
                  {},
                  batch->columns(),
                  {&batch->beside(), nullptr, &closed_, nullptr, &turn, batch->block()},
                  0});
  }
  std::fill_n(batch->mask(), rows(), false);
  std::fill_n(batch->mask(), begun.indices.size(), true);
  return batch;
}

}  // namespace millstream
