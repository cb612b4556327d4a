#pragma once

#include <memory>
#include <span>
#include <string>

#include "millstream/core/worker_pool.h"
#include "millstream/transform/transform.h"

namespace millstream {

/// A sample that a function makes of a sample and, where it `draws`, of a seed of 64
/// bits that is keyed by (seed, epoch, sample, stage).
class FunctionTransform : public Transform {
 public:
  /// `name` is what stands in messages; `input` what the function takes, `output` what
  /// it gives.
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
            .workers = worker_pool_->workers()};
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
