#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "millstream/core/worker_pool.h"
#include "millstream/source/source.h"

namespace millstream {

/// Samples that a function makes from their indices.
class FunctionSource : public Source {
 public:
  FunctionSource(std::int64_t size, Schema schema,
                 std::shared_ptr<WorkerPool> worker_pool);

  std::int64_t size() const noexcept override { return size_; }
  const Schema& schema() const noexcept override { return schema_; }
  WorkerPool* worker_pool() const noexcept override { return worker_pool_.get(); }
  bool queues() const noexcept override { return true; }
  void read_for(const CallContext& context, std::int64_t first,
                std::span<const std::int64_t> indices, std::span<Column> columns,
                Memory& memory) const override;

 private:
  std::int64_t size_;
  Schema schema_;
  std::shared_ptr<WorkerPool> worker_pool_;
};

}  // namespace millstream
