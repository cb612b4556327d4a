#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "millstream/core/worker_pool.h"
#include "millstream/source/source.h"

namespace millstream {

/// Samples that a function makes from their indices. The worker pool calls the
/// function. If the function needs random numbers, it also gets a 64-bit seed that
/// depends only on (seed, epoch, sample, stage), where `sample` is the index in this
/// source.
class FunctionSource : public Source {
 public:
  /// The function gets seeds if there is a `stage`, which is a number for
  /// `Request::random`. `function_numbers` is that of the traits.
  FunctionSource(std::int64_t size, Schema schema,
                 std::shared_ptr<WorkerPool> worker_pool,
                 std::optional<std::uint32_t> stage = {},
                 std::uint32_t function_numbers = 0);

  std::int64_t size() const noexcept override { return size_; }
  const Schema& schema() const noexcept override { return schema_; }
  Traits traits() const noexcept override {
    return {.waits = true,
            .cheap = false,
            .may_fail = true,
            .workers = worker_pool_->workers(),
            .needs_workers = !worker_pool_->lends_function(),
            .draws = stage_.has_value(),
            .function_numbers = function_numbers_};
  }
  void read(const Request& request, Rows& rows) const override;
  void prepare(std::span<const std::int64_t>) const noexcept override {}
  WorkerPool* worker_pool() const noexcept override { return worker_pool_.get(); }

 private:
  std::int64_t size_;
  Schema schema_;
  std::shared_ptr<WorkerPool> worker_pool_;
  std::optional<std::uint32_t> stage_;
  std::uint32_t function_numbers_;
};

}  // namespace millstream
