#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "millstream/workers/message.h"

namespace millstream {

/// The file descriptors that a worker process inherits.
inline constexpr int kWorkerSocket = 3;
inline constexpr int kWorkerMemory = 4;
inline constexpr int kWorkerStack = 5;  // where it writes its stacks, when asked

/// The signal that asks a worker which takes too long for its stacks.
int stack_signal() noexcept;

/// The pool's counterpart inside a worker process. Ends the process as soon as the
/// parent has exited, in whatever way. Belongs to one thread.
class Worker {
 public:
  /// Waits for the setup message.
  explicit Worker(std::int64_t parent);

  const std::string& setup() const noexcept { return setup_; }

  /// Says that it can take tasks.
  void ready();
  /// Waits for the next task; false when there will be none.
  bool next();
  const Task& task() const noexcept { return task_; }
  std::byte* data(const Task::Rows& rows) { return blocks_.at(rows.location); }

  /// The row that it is making, or -n while it makes the first n together. The
  /// supervisor reads it for timeouts and errors.
  std::atomic<std::int64_t>& row() noexcept { return *row_; }

  /// Answers to the task.
  void done(std::string_view host_values);
  void failed(const Failure& failure);

 private:
  MappedBlocks blocks_;
  MappedBlocks row_cells_;  // for `row_`, always mapped
  std::string setup_;
  Task task_;
  std::string body_;
  std::atomic<std::int64_t>* row_ = nullptr;
};

}  // namespace millstream
