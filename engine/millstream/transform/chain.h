#pragma once

#include <memory>
#include <span>
#include <vector>

#include "millstream/transform/transform.h"

namespace millstream {

/// Transforms one after the other. What passes through unchanged is never copied on the
/// way, and the last stage to make a field writes it where it belongs.
class Chain {
 public:
  /// Throws `ArgumentError` where a stage cannot take what the one before gives.
  /// `preceding` are the stages before the chain, which may draw random numbers too.
  Chain(Schema input, std::vector<std::shared_ptr<const Transform>> transforms,
        const std::vector<std::shared_ptr<const Transform>>& preceding = {});

  const Schema& input() const noexcept { return input_; }
  const Schema& output() const noexcept;

  /// Whether any stage makes bytes, rather than passing them on.
  bool makes() const noexcept;

  /// The output field that is input field i unchanged, or -1: the source may write such
  /// a field straight to the batch.
  int output_of(int input_field) const noexcept {
    return direct_[static_cast<std::size_t>(input_field)];
  }

  /// Makes the rows of `out` of those of `in`. A column of `in` that is already where
  /// `out` wants it is left alone.
  void run(Request request, const Rows& in, Rows& out) const;

  /// The traits of all stages.
  Traits traits() const noexcept;

 private:
  struct Stage {
    std::shared_ptr<const Transform> transform;
    Flow flow;
    std::vector<int> target;  // the output field that each made field ends as, or -1
    bool makes = false;
    std::uint32_t number = 0;  // under which it draws
  };

  Schema input_;
  std::vector<Stage> stages_;
  std::vector<int> direct_;
};

}  // namespace millstream
