#include "millstream/transform/function.h"

#include <utility>
#include <vector>

#include "millstream/core/error.h"

namespace millstream {

FunctionTransform::FunctionTransform(std::string name, Schema input, Schema output,
                                     std::shared_ptr<WorkerPool> worker_pool,
                                     bool draws)
    : name_(std::move(name)),
      input_(std::move(input)),
      output_(std::move(output)),
      worker_pool_(std::move(worker_pool)),
      draws_(draws) {}

Flow FunctionTransform::flow(const Schema& input) const {
  if (input != input_) {
    throw ArgumentError(text(name_, " takes ", millstream::str(input_), ", not ",
                             millstream::str(input)));
  }
  return {output_, std::vector<int>(output_.size(), Flow::kMade)};
}

void FunctionTransform::apply(const Flow&, const Request& request, const Rows& in,
                              Rows& out) const {
  std::span<const std::uint64_t> seeds;
  if (draws_) seeds = request.function_seeds(out.memory);
  std::vector<HostValue> host_values;
  if (request.context.host_values != nullptr) {
    host_values = request.context.host_values->take();
  }
  worker_pool_->make({request.indices, seeds, in.columns, out.columns, request.context,
                      request.first, host_values});
}

}  // namespace millstream
