#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "millstream/core/maker.h"
#include "millstream/workers/child.h"
#include "millstream/workers/descriptor.h"
#include "millstream/workers/job.h"
#include "millstream/workers/process_crew.h"

namespace millstream {

/// Rows for one worker.
struct Part {
  std::shared_ptr<Job> job;
  std::int64_t begin = 0;  // in the job
  Task task;
  Beside* beside = nullptr;
  std::int64_t first = 0;  // what `beside` counts the first row as

  std::int64_t rows() const { return static_cast<std::int64_t>(task.indices.size()); }
};

/// The thread that looks after a crew's processes: starts them, hands out parts, takes
/// answers, and notices those that died or stall. Nobody else touches them.
class Desk {
 public:
  Desk(const Launch& launch, ProcessCrew::Options options,
       std::shared_ptr<SharedMemory> memory);
  ~Desk();
  Desk(const Desk&) = delete;
  Desk& operator=(const Desk&) = delete;

  /// Throws `Closed` once it has ended.
  void add(std::vector<std::shared_ptr<Part>> parts);
  /// Ends the processes; those who wait are told that it is over. For one thread.
  void end() noexcept;
  /// Something may have been cancelled.
  void nudge() noexcept;
  /// For one of `at_once` batches.
  std::int64_t grain(std::int64_t rows, int at_once) const noexcept {
    return pace_.grain(rows, options_.workers, at_once);
  }
  std::vector<std::int64_t> pids() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Seat {
    std::unique_ptr<Child> child;
    std::atomic<std::int64_t>* row = nullptr;  // in shared memory
    std::deque<std::shared_ptr<Part>> given;   // the first is being made
    bool ready = false;
    bool proven = false;      // it has answered to a part
    std::int64_t seen = 0;    // what it noted of where it is
    Clock::time_point since;  // when it was first seen there
    Clock::time_point begun;  // when the first part was
    /// When it was first seen to be of no use: at what nobody wants, or not listening.
    std::optional<Clock::time_point> useless;
  };

  void run(const std::stop_token& stop);
  void start_workers();
  void hand_out();
  void drop_cancelled();
  bool wait(const std::stop_token& stop);
  void take_answers(Seat& seat);
  void answer(Seat& seat, Kind kind, const std::string& body);
  std::shared_ptr<Part> vacate(Seat& seat);
  void bury(Seat& seat, const std::string& epitaph);
  void look_after(Seat& seat);
  void look_for_stall(Seat& seat);
  void put_back(std::shared_ptr<Part> part);
  void end_all() noexcept;
  template <typename Make>
  void fail_all(const Make& error);
  std::deque<std::shared_ptr<Part>> queued() noexcept;
  bool idle() const;
  bool watched() const;

  const Launch launch_;
  const ProcessCrew::Options options_;
  const std::shared_ptr<SharedMemory> memory_;
  const Block board_;      // a cell a worker
  const Descriptor wake_;  // an eventfd
  Pace pace_;
  int restarts_;
  std::vector<Seat> seats_;  // the thread's own, but for who is in them
  mutable std::mutex mutex_;
  std::deque<std::shared_ptr<Part>> queue_;
  std::vector<std::int64_t> pids_;
  bool hungry_ = true;  // it would hand out what is added
  bool over_ = false;
  std::jthread thread_;  // last: it uses the members above
};

}  // namespace millstream
