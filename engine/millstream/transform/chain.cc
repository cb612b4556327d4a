#include "millstream/transform/chain.h"

#include <algorithm>
#include <map>
#include <utility>

#include "millstream/core/convert.h"
#include "millstream/core/error.h"

namespace millstream {
namespace {

bool same_bytes(const Column& a, const Column& b) {
  return a.dtype == b.dtype && a.data != nullptr && a.data == b.data;
}

}  // namespace

Flow passing(const Schema& input) {
  Flow flow{input, {}};
  for (std::size_t i = 0; i < input.size(); ++i)
    flow.from.push_back(static_cast<int>(i));
  return flow;
}

std::string named(const std::string& name, const std::vector<std::string>& fields) {
  std::string result = name + "(";
  for (const std::string& field : fields) {
    if (&field != &fields.front()) result += ", ";
    result += field;
  }
  return result + ")";
}

Chain::Chain(Schema input, std::vector<std::shared_ptr<const Transform>> transforms,
             const std::vector<std::shared_ptr<const Transform>>& preceding,
             std::uint32_t function_numbers)
    : input_(std::move(input)) {
  // The stages of each kind so far that draw.
  std::map<StageKind, std::uint32_t> drawing = {
      {StageKind::kFunction, function_numbers}};
  for (const auto& transform : preceding)
    drawing[transform->kind()] += transform->draws();
  for (auto& transform : transforms) {
    Flow flow = transform->flow(output());
    // A worker pool may make nothing but host values.
    const bool makes = std::ranges::count(flow.from, Flow::kMade) > 0 ||
                       transform->worker_pool() != nullptr;
    std::uint32_t& before = drawing[transform->kind()];
    const std::uint32_t number = static_cast<std::uint32_t>(transform->kind()) + before;
    before += transform->draws();
    stages_.push_back({std::move(transform), std::move(flow), {}, makes, number});
  }
  // Goes backwards to find the output field that each field becomes, if it stays
  // unchanged.
  std::vector<int> ends(output().size());
  for (std::size_t i = 0; i < ends.size(); ++i) ends[i] = static_cast<int>(i);
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
    const Schema& before =
        stage + 1 == stages_.rend() ? input_ : (stage + 1)->flow.schema;
    std::vector<int> earlier(before.size(), -1);
    for (std::size_t i = 0; i < ends.size(); ++i) {
      const int from = stage->flow.from[i];
      if (from >= 0) earlier[static_cast<std::size_t>(from)] = ends[i];
    }
    stage->target = std::move(ends);
    ends = std::move(earlier);
  }
  direct_ = std::move(ends);
}

bool Chain::makes() const noexcept {
  return std::ranges::any_of(stages_, [](const Stage& stage) { return stage.makes; });
}

const Schema& Chain::output() const noexcept {
  return stages_.empty() ? input_ : stages_.back().flow.schema;
}

Traits Chain::traits() const noexcept {
  Traits all;
  for (const Stage& stage : stages_) all = combined(all, stage.transform->traits());
  return all;
}

void Chain::run(Request request, const Rows& in, Rows& out) const {
  const auto& [output, memory] = out;
  const std::int64_t rows = request.rows();
  std::span<const Column> current = in.columns;
  for (const Stage& stage : stages_) {
    request.stage = stage.number;
    const Schema& schema = stage.flow.schema;
    const auto next = memory.array<Column>(static_cast<std::int64_t>(schema.size()));
    for (std::size_t i = 0; i < schema.size(); ++i) {
      const int from = stage.flow.from[i];
      const int target = stage.target[i];
      if (from >= 0) {
        next[i] = current[static_cast<std::size_t>(from)];
        next[i].shape = schema[i].shape;
      } else if (target >= 0 &&
                 output[static_cast<std::size_t>(target)].dtype == schema[i].dtype) {
        next[i] = output[static_cast<std::size_t>(target)];
        next[i].shape = schema[i].shape;  // a later stage may change the shape
      } else {
        const std::int64_t bytes = byte_size(schema[i]);
        next[i] = {schema[i].dtype, schema[i].shape, memory.allocate(bytes * rows),
                   bytes, nullptr};
      }
    }
    if (stage.makes) {
      Rows made{next, memory};
      stage.transform->apply(stage.flow, request, {current, memory}, made);
    }
    current = next;
  }
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (same_bytes(current[i], output[i])) continue;
    convert_rows(this->output()[i].name, current[i], output[i], rows, request.indices);
  }
}

}  // namespace millstream
