#include "millstream/loader/state.h"

#include "millstream/core/error.h"

namespace millstream {

State encoded(const Plan& plan, const Position& position) noexcept {
  const auto step = static_cast<std::uint64_t>(position.step);
  return {check_word(plan),
          position.seed.high,
          position.seed.low,
          position.epoch,
          static_cast<std::uint32_t>(step),
          static_cast<std::uint32_t>(step >> 32),
          0,
          0};
}

Position decoded(const Plan& plan, std::span<const std::uint32_t, kStateWords> state) {
  if (state[0] != check_word(plan)) {
    throw ArgumentError(
        "this state belongs to another pipeline. The number of samples, their dtypes "
        "and shapes, the filter, the order, the batch size and the remainder must be "
        "the same as when the state was made. If it was stored with save(), restore() "
        "lists the differences.");
  }
  const std::uint64_t step = (std::uint64_t{state[5]} << 32) | state[4];
  if (step >= static_cast<std::uint64_t>(plan.schedule().steps())) {
    throw ArgumentError(text("the state names step ", step, ", but an epoch has only ",
                             plan.schedule().steps()));
  }
  return {{state[2], state[1]}, state[3], static_cast<std::int64_t>(step)};
}

State next_state(const Plan& plan, std::span<const std::uint32_t, kStateWords> state) {
  State next = encoded(plan, plan.schedule().next(decoded(plan, state)));
  next[6] = state[6];
  next[7] = state[7];
  return next;
}

}  // namespace millstream
