#pragma once

#include <memory>
#include <span>
#include <string>

#include "millstream/core/worker_pool.h"
#include "millstream/transform/transform.h"

namespace millstream {

/// Applies a user's function to each sample in a worker pool. If the function
/// needs random numbers, it also gets a 64-bit seed that depends only on (seed, epoch,
/// sample, stage). The pool takes the host values of the rows, and what it returns
/// replaces them.
class FunctionTransform : public Transform {
 public:
  /// `name` appears in messages. `input` and `output` are the fields that the function
  /// takes and returns.
  FunctionTransform(std::string name, Schema input, Schema output,
                    std::shared_ptr<WorkerPool> worker_pool, bool draws = true);

  std::string str() const override { return name_; }
  StageKind kind() const noexcept override { return StageKind::kFunction; }
  bool draws() const noexcept override { return draws_; }
  Flow flow(const Schema& input) const override;
  Traits traits() const noexcept override {
    return {.waits = true,
            .cheap = false,
            .may_fail = true,
            .workers = worker_pool_->workers(),
            .needs_workers = !worker_pool_->lends_function()};
  }
  void apply(const Flow& flow, const Request& request, const Rows& in,
             Rows& out) const override;
  WorkerPool* worker_pool() const noexcept override { return worker_pool_.get(); }

 private:
  std::string name_;
  Schema input_;
  Schema output_;
  std::shared_ptr<WorkerPool> worker_pool_;
  bool draws_;
};

}  // namespace millstream
