#include "millstream/order/order.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "millstream/core/error.h"
#include "millstream/order/mixture.h"
#include "millstream/order/windowed.h"
#include "module.h"

using namespace nanobind::literals;

namespace millstream::python {
namespace {

using OrderHandle = Handle<Order>;
using Words = std::pair<std::uint32_t, std::uint32_t>;  // high, low, as in a JAX key
template <typename T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T, typename... Sizes>
OrderHandle order(Sizes... sizes) {
  return {std::make_shared<T>(sizes...)};
}

OrderHandle weighted(const Vector<double>& weights, std::int64_t length) {
  return {
      std::make_shared<Weighted>(std::span(weights.data(), weights.size()), length)};
}

OrderHandle listed(const OrderHandle& inner, const Vector<std::int64_t>& list,
                   std::int64_t n) {
  std::vector<std::int64_t> copy(list.data(), list.data() + list.size());
  return {std::make_shared<Listed>(inner.shared, std::move(copy), n)};
}

OrderHandle split_order(const OrderHandle& inner, std::int64_t n, std::int64_t first,
                        std::int64_t length, std::pair<std::int64_t, std::int64_t> gap,
                        std::optional<Words> seed) {
  const Seed words = seed ? Seed{seed->second, seed->first} : Seed{};
  const SplitRange range{n,    first, length, gap.first, gap.second, seed.has_value(),
                         words};
  return {std::make_shared<SplitOrder>(inner.shared, range)};
}

OrderHandle mixture(const std::vector<std::pair<OrderHandle, std::int64_t>>& components,
                    std::int64_t length) {
  std::vector<Mixture::Component> weighted;
  for (const auto& [order, weight] : components)
    weighted.push_back({order.shared, weight});
  return {std::make_shared<Mixture>(weighted, length)};
}

void check_position(const OrderHandle& order, std::int64_t position) {
  const std::int64_t length = order.shared->length();
  if (position < 0 || position >= length)
    throw ArgumentError("position " + std::to_string(position) +
                        " is outside the epoch: expected 0 to " +
                        std::to_string(length - 1));
}

using Positions = nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// Replaces positions by the samples there. Throws `ArgumentError` if a position is
/// outside the epoch.
void samples_at(const OrderHandle& order, Words key, std::uint32_t epoch,
                const Positions& positions) {
  const std::span<std::int64_t> all(positions.data(), positions.size());
  for (const std::int64_t position : all) check_position(order, position);
  for (std::size_t first = 0; first < all.size();) {
    std::size_t end = first + 1;
    while (end < all.size() && all[end] == all[end - 1] + 1) ++end;
    order.shared->run(Seed{key.second, key.first}, epoch, all[first],
                      all.subspan(first, end - first));
    first = end;
  }
}

/// The sample at one position. Throws `ArgumentError` if the position is outside the
/// epoch.
std::int64_t sample_at(const OrderHandle& order, Words key, std::uint32_t epoch,
                       std::int64_t position) {
  check_position(order, position);
  std::int64_t sample = 0;
  order.shared->run(Seed{key.second, key.first}, epoch, position,
                    std::span(&sample, 1));
  return sample;
}

}  // namespace

void bind_order(nb::module_& module) {
  nb::class_<OrderHandle>(module, "Order",
                          "The order in which an epoch visits the samples.")
      .def_prop_ro("length", [](const OrderHandle& o) { return o.shared->length(); })
      .def_prop_ro("samples", [](const OrderHandle& o) { return o.shared->samples(); })
      .def("sample_at", sample_at, "key"_a, "epoch"_a, "position"_a,
           "Returns the sample at one position of an epoch. `key` is (high, low).")
      .def("samples_at", samples_at, "key"_a, "epoch"_a, "positions"_a,
           "Replaces the positions in an array by the samples there.");

  using Size = std::int64_t;
  module.def("sequential", order<Sequential, Size>, "n"_a,
             "0, 1, 2, ... in every epoch.");
  module.def("shuffle", order<Shuffle, Size>, "n"_a,
             "Each epoch visits every sample once, in a new random order.");
  module.def("windowed_shuffle", order<WindowedShuffle, Size, Size, Size>, "n"_a,
             "block_size"_a, "window"_a,
             "Each epoch visits every sample once: blocks in random order, and samples "
             "shuffled within windows.");
  module.def("replacement", order<Replacement, Size, Size>, "n"_a, "length"_a,
             "Each epoch draws `length` samples with replacement.");
  module.def("weighted", weighted, "weights"_a, "length"_a,
             "Each epoch draws `length` samples in proportion to their weights.");
  module.def(
      "listed", listed, "inner"_a, "list"_a, "n"_a,
      "The samples in `list`, in the order in which `inner` visits its positions.");
  module.def("mixture", mixture, "components"_a, "length"_a,
             "Mixes several orders in proportion to their weights.");
  module.def("split_order", split_order, "inner"_a, "n"_a, "first"_a, "length"_a,
             "gap"_a, "seed"_a.none(),
             "The samples of one range of a split or a cross-validation fold.");
}

}  // namespace millstream::python
