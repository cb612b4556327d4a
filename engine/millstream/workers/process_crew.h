#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "millstream/core/maker.h"
#include "millstream/workers/child.h"

namespace millstream {

class Desk;

/// Processes that make rows, writing them straight into blocks that they share with
/// this one. They begin with the first rows that are asked for, and a thread of the
/// crew's looks after them. One that is busy with what nobody wants any more is given
/// a second, and then replaced. In a forked process it can only be let go of.
class ProcessCrew final : public Maker {
 public:
  struct Options {
    int workers = 1;
    std::chrono::milliseconds timeout{0};  // for one row; 0 for any time
    int restarts = 0;  // workers that may be replaced, their rows tried again
  };

  ProcessCrew(Launch launch, Options options);
  ~ProcessCrew() override;

  void make(const Work& work) override;
  Block block(std::int64_t bytes) override;
  void close() noexcept override;
  int workers() const noexcept override { return options_.workers; }

  /// Those that run now.
  std::vector<std::int64_t> pids() const;

 private:
  std::shared_ptr<Desk> desk();
  Block staging(std::int64_t bytes);
  void give_back(Block block) noexcept;
  bool forked() const noexcept;

  const Launch launch_;
  const Options options_;
  const std::shared_ptr<SharedMemory> memory_;
  const std::int64_t process_;
  std::atomic<int> making_ = 0;  // batches at once
  mutable std::mutex mutex_;
  std::shared_ptr<Desk> desk_;  // made when first needed
  std::vector<Block> free_;     // for rows that are not in shared memory
  bool closed_ = false;
};

}  // namespace millstream
