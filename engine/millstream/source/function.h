#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "millstream/core/worker_pool.h"
#include "millstream/source/source.h"

namespace millstream {

/// Samples that a function makes from their indices. The worker pool calls the
/// function.
class FunctionSource : public Source {
 public:
  FunctionSource(std::int64_t size, Schema schema,
                 std::shared_ptr<WorkerPool> worker_pool);

  std::int64_t size() const noexcept override { return size_; }
  const Schema& schema() const noexcept override { return schema_; }
  Traits traits() const noexcept override {
    return {.waits = true,
            .cheap = false,
            .may_fail = true,
            .workers = worker_pool_->workers()};
  }
  void read(const Request& request, Rows& rows) const override;
  void prepare(std::span<const std::int64_t>) const noexcept override {}
  WorkerPool* worker_pool() const noexcept override { return worker_pool_.get(); }

 private:
  std::int64_t size_;
  Schema schema_;
  std::shared_ptr<WorkerPool> worker_pool_;
};

}  // namespace millstream
