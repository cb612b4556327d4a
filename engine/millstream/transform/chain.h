#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "millstream/transform/transform.h"

namespace millstream {

/// Transforms that are applied one after the other. Fields that a transform leaves
/// unchanged are not copied. The last transform that makes a field writes it directly
/// to the output.
class Chain {
 public:
  /// Throws `ArgumentError` if a stage cannot take the output of the stage before it.
  /// `preceding` are the stages that run before this chain. The numbers
  /// of stages that draw random numbers continue after theirs. `function_numbers` is
  /// that of the source's traits.
  Chain(Schema input, std::vector<std::shared_ptr<const Transform>> transforms,
        const std::vector<std::shared_ptr<const Transform>>& preceding = {},
        std::uint32_t function_numbers = 0);

  const Schema& input() const noexcept { return input_; }
  const Schema& output() const noexcept;

  /// Whether any stage writes new bytes or calls workers.
  bool makes() const noexcept;

  /// The output field that is input field i unchanged, or -1. The source may write such
  /// a field directly to the batch.
  int output_of(int input_field) const noexcept {
    return direct_[static_cast<std::size_t>(input_field)];
  }

  /// Transforms the rows of `in` and writes them to `out`. A column of `in` that shares
  /// its memory with the matching column of `out` is not copied.
  void run(Request request, const Rows& in, Rows& out) const;

  /// The combined traits of all stages.
  Traits traits() const noexcept;

 private:
  struct Stage {
    std::shared_ptr<const Transform> transform;
    Flow flow;
    std::vector<int> target;  // the output field that each field becomes, or -1
    bool makes = false;
    std::uint32_t number = 0;  // the stage number in its random key
  };

  Schema input_;
  std::vector<Stage> stages_;
  std::vector<int> direct_;
};

}  // namespace millstream
