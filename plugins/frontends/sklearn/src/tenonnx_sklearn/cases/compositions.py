"""Settings of meta-estimators, and of user-defined functions, as data."""

COMPOSITIONS = {
    "binary three": """
LogisticRegression(class_weight="balanced") -> predict, predict_log_proba
GradientBoostingClassifier(n_estimators=8) -> predict, predict_log_proba, decision_function
VotingClassifier([("a", LogisticRegression()), ("b", GaussianNB()), ("c", "drop")], voting="soft", weights=[3, 1, 1])
VotingClassifier([("a", LogisticRegression()), ("b", GaussianNB())], voting="soft") -> transform
VotingClassifier([("a", LogisticRegression()), ("b", GaussianNB())], voting="hard") -> predict, transform
make_pipeline(VotingClassifier([("a", LinearSVC()), ("b", GaussianNB())]), LogisticRegression())
StackingClassifier([("a", LogisticRegression()), ("b", GaussianNB())]) -> predict, transform
StackingClassifier([("a", SVC()), ("b", GaussianNB())], stack_method="predict", final_estimator=GaussianNB())
StackingClassifier([("a", StackingClassifier([("b", GaussianNB())], cv=2, final_estimator=LogisticRegression()))], cv=2)
BaggingClassifier(DecisionTreeClassifier(), n_estimators=8, max_samples=4, random_state=0)
BaggingClassifier(make_pipeline(StandardScaler(), SVC()), n_estimators=3, max_features=0.5, random_state=0)
BaggingClassifier(HistGradientBoostingClassifier(max_iter=3), n_estimators=3, bootstrap_features=True, random_state=0)
OneVsRestClassifier(RandomForestClassifier(4, random_state=0)) -> predict, predict_proba
OneVsRestClassifier(KNeighborsClassifier(3)) -> predict, predict_proba
OneVsRestClassifier(Ridge())
OneVsRestClassifier(GaussianNB())
OneVsOneClassifier(GaussianNB()) -> predict, decision_function
OneVsOneClassifier(RandomForestClassifier(5, random_state=0)) -> predict, decision_function
OneVsOneClassifier(CalibratedClassifierCV(LinearSVC(), cv=2))
OutputCodeClassifier(GaussianNB(), code_size=2, random_state=0)
OutputCodeClassifier(KNeighborsClassifier(3), code_size=2, random_state=0)
OutputCodeClassifier(SVC(), code_size=2, random_state=0)
CalibratedClassifierCV(make_pipeline(StandardScaler(), SVC()), method="isotonic", cv=2)
CalibratedClassifierCV(DecisionTreeClassifier(max_depth=2), method="isotonic", cv=3)
AdaBoostClassifier(LogisticRegression(), n_estimators=3)
SelfTrainingClassifier(KNeighborsClassifier(3))
SVC(kernel=lambda A, B: (A @ B.T + 1) ** 2)
KNeighborsClassifier(3, metric=lambda a, b: np.sqrt(np.sum((a - b) ** 2)))
KNeighborsClassifier(3, metric=lambda a, b, w: np.abs(a - b) @ w, metric_params={"w": np.arange(1.0, 5.0)})
KNeighborsClassifier(3, metric=lambda a, b: sum(abs(x - y) for x, y in zip(a, b)))
KNeighborsClassifier(metric="mahalanobis", metric_params={"VI": np.diag([1.0, 2.0, 0.5, 1.0])})
KNeighborsClassifier(metric="correlation", algorithm="brute")
KNeighborsClassifier(metric="sqeuclidean", algorithm="brute")
RadiusNeighborsClassifier(radius=1.0, metric="jaccard", outlier_label="most_frequent")
RadiusNeighborsClassifier(radius=0.6, metric="hamming", outlier_label=0)
GaussianProcessClassifier(multi_class="one_vs_one")
make_pipeline(FeatureUnion([("p", PCA(2)), ("k", SelectKBest(k=1))], transformer_weights={"p": 3.0}), LogisticRegression())
make_pipeline(SelectFromModel(LogisticRegression(), threshold="0.5*mean", max_features=3), LogisticRegression())
""",
    "binary": """
TunedThresholdClassifierCV(LogisticRegression(), scoring=make_scorer(fbeta_score, beta=2), cv=2)
TunedThresholdClassifierCV(GaussianNB(), scoring=make_scorer(lambda y, p: np.mean(y == p)), cv=2)
TunedThresholdClassifierCV(LinearSVC(), response_method="decision_function", cv=2)
OneVsRestClassifier(HistGradientBoostingClassifier(max_iter=4))
""",
    "words": """
StackingClassifier([("a", LogisticRegression()), ("b", SVC())], passthrough=True)
VotingClassifier([("a", LogisticRegression()), ("b", GaussianNB())], voting="soft")
BaggingClassifier(LinearSVC(), n_estimators=6, max_samples=6, random_state=2)
OutputCodeClassifier(RandomForestClassifier(5, random_state=0), random_state=0)
SVC(kernel="poly", class_weight={"a": 3.0}, probability=True, random_state=0)
RadiusNeighborsClassifier(radius=1.0, outlier_label="most_frequent")
""",
    "several labels": """
MultiOutputClassifier(LogisticRegression()) -> predict, predict_proba
MultiOutputClassifier(HistGradientBoostingClassifier(max_iter=4)) -> predict, predict_proba
RandomForestClassifier(6, random_state=0) -> predict, predict_proba
KNeighborsClassifier(3) -> predict, predict_proba
DummyClassifier(strategy="prior") -> predict, predict_proba
ClassifierChain(RandomForestClassifier(4, random_state=0), order="random", random_state=1) -> predict, predict_proba
ClassifierChain(LogisticRegression(), chain_method="predict_log_proba") -> predict, decision_function
ClassifierChain(LogisticRegression(), chain_method=["predict_proba", "decision_function"])
StackingClassifier([("a", KNeighborsClassifier(3))], final_estimator=DecisionTreeClassifier(max_depth=3), cv=2)
OneVsRestClassifier(RandomForestClassifier(4, random_state=0)) -> predict, predict_proba
OneVsRestClassifier(Ridge())
RadiusNeighborsClassifier(radius=1.0, outlier_label=[0, 1])
""",
    "number": """
StackingRegressor([("a", Ridge()), ("b", SVR())], final_estimator=RandomForestRegressor(4, random_state=0), cv=2)
make_pipeline(StackingRegressor([("a", Ridge()), ("b", SVR())], cv=2), LinearRegression())
make_pipeline(VotingRegressor([("a", Ridge()), ("b", SVR())]), LinearRegression())
TransformedTargetRegressor(Ridge(), transformer=make_pipeline(StandardScaler(), PowerTransformer()))
SVR(kernel=lambda A, B: np.exp(-0.1 * ((A**2).sum(1)[:, None] + (B**2).sum(1)[None] - 2 * np.dot(A, B.T))))
KernelRidge(kernel=lambda a, b: np.exp(-0.3 * np.sum(np.abs(a - b))))
KernelRidge(kernel=lambda a, b, c: (np.dot(a, b) + c) ** 2, kernel_params={"c": 0.5})
KNeighborsRegressor(3, metric="nan_euclidean")
KNeighborsRegressor(3, metric=lambda a, b: np.linalg.norm(a - b, ord=1))
GaussianProcessRegressor(PairwiseKernel(metric="laplacian", gamma=0.3), alpha=0.1, optimizer=None) -> predict, predict_std
GaussianProcessRegressor(PairwiseKernel(metric="poly", gamma=0.1), alpha=0.5, optimizer=None) -> predict, predict_std
""",
    "rows": """
MaxAbsScaler(clip=True)
KernelDensity(metric="manhattan", bandwidth=1.0)
KernelDensity(kernel="cosine", bandwidth=9.0)
KernelDensity(bandwidth="scott")
BayesianGaussianMixture(n_components=2, covariance_type="tied", max_iter=9, random_state=0)
FeatureAgglomeration(2, pooling_func=np.median)
FunctionTransformer(lambda X: np.fmod(X, 3))
FunctionTransformer(lambda X: np.repeat(X, 2, axis=1))
FunctionTransformer(lambda X: np.outer(X[:, 0], [1.0, 2.0]) + np.radians(X[:, :2]))
FunctionTransformer(lambda X: np.insert(X, 1, 1.0, axis=1))
FunctionTransformer(lambda X: X.std(axis=1, ddof=1, keepdims=True))
FunctionTransformer(lambda X: np.broadcast_to(X[:, :1], X.shape))
FunctionTransformer(lambda X: np.isclose(X, 0, atol=0.5))
SplineTransformer(degree=1, n_knots=4)
Nystroem(kernel=lambda a, b: (a @ b + 1) ** 2, n_components=8, random_state=0)
KernelPCA(2, kernel=lambda a, b: np.dot(a, b))
FunctionTransformer(lambda X: np.sort(X, axis=1))
FunctionTransformer(lambda X: np.median(X, axis=1, keepdims=True) + np.quantile(X, 0.3, axis=1, keepdims=True))
FunctionTransformer(lambda X: np.concatenate([X, np.ones((X.shape[0], 1))], axis=1))
FunctionTransformer(lambda X: np.digitize(X, [-1, 0, 1]))
FunctionTransformer(lambda X: np.select([X < -1, X < 1], [X * 0, X], default=2.0))
FunctionTransformer(lambda X: np.column_stack([np.hypot(X[:, 0], X[:, 1]), np.arctan2(X[:, 0], X[:, 1])]))
FunctionTransformer(lambda X: np.einsum("ij,j->i", X, np.arange(4.0))[:, None])
FunctionTransformer(lambda X: np.interp(X, [-1, 0, 1], [0, 1, 5]))
FunctionTransformer(lambda X: np.roll(np.flip(X, axis=1), 1, axis=1))
FunctionTransformer(lambda X: (X - X.min(axis=1, keepdims=True)) / np.ptp(X, axis=1, keepdims=True))
FunctionTransformer(lambda X: np.round(np.trunc(X * 3) / 7, 2))
""",
    "missing": """
FunctionTransformer(lambda X: np.zeros_like(X) + np.full_like(X, 2.0))
FunctionTransformer(lambda X: np.piecewise(X, [X < -1, X > 1], [-1, lambda x: x * x, 0.5]))
QuantileTransformer(n_quantiles=20, output_distribution="normal")
KNNImputer(weights=lambda d: 1 / (1 + d))
IterativeImputer(KNeighborsRegressor(3), imputation_order="descending", max_iter=2, random_state=0)
IterativeImputer(imputation_order="roman", initial_strategy="median", add_indicator=True, max_iter=2, random_state=0)
FunctionTransformer(lambda X: np.fmax(np.nanmean(X, axis=1, keepdims=True), 0))
FunctionTransformer(lambda X: np.any(np.isnan(X), axis=1, keepdims=True).astype(int))
OneHotEncoder(handle_unknown="ignore", max_categories=3)
OrdinalEncoder(max_categories=4, handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-5)
""",
    "missing binary": """
BaggingClassifier(HistGradientBoostingClassifier(max_iter=3), n_estimators=3, random_state=0)
StackingClassifier([("a", HistGradientBoostingClassifier(max_iter=3))], final_estimator=LogisticRegression(), cv=2)
KNeighborsClassifier(metric="nan_euclidean")
""",
    "missing three": """
OutputCodeClassifier(HistGradientBoostingClassifier(max_iter=3), code_size=2, random_state=0)
OneVsRestClassifier(HistGradientBoostingClassifier(max_iter=3))
DummyClassifier()
""",
    "texts binary": """
make_pipeline(TfidfVectorizer(), SVC())
make_pipeline(TfidfVectorizer(), SVC(kernel="linear", probability=True, random_state=0))
make_pipeline(TfidfVectorizer(), NuSVC(nu=0.3, kernel="poly", degree=2))
make_pipeline(TfidfVectorizer(), OneVsRestClassifier(SVC()))
make_pipeline(TfidfVectorizer(), CalibratedClassifierCV(SVC(), cv=2))
make_pipeline(CountVectorizer(), VotingClassifier([("a", SVC()), ("b", MultinomialNB()), ("c", LogisticRegression())]))
make_pipeline(CountVectorizer(), LabelPropagation(gamma=0.3))
make_pipeline(TfidfVectorizer(), RadiusNeighborsClassifier(radius=1.1, outlier_label="most_frequent"))
make_pipeline(CountVectorizer(), SGDClassifier(penalty="l1", loss="log_loss", random_state=0))
make_pipeline(TfidfVectorizer(), FunctionTransformer(lambda rows: rows.toarray(), accept_sparse=True), GaussianNB())
""",
    "texts words": """
make_pipeline(TfidfVectorizer(), SVC(kernel="sigmoid"))
make_pipeline(TfidfVectorizer(), OneVsOneClassifier(SVC()))
make_pipeline(TfidfVectorizer(), BaggingClassifier(SVC(), n_estimators=3, random_state=0))
""",
    "texts number": """
make_pipeline(TfidfVectorizer(), SVR())
make_pipeline(TfidfVectorizer(), NuSVR(kernel="poly", degree=2))
make_pipeline(TfidfVectorizer(), KernelRidge(kernel="rbf"))
make_pipeline(TfidfVectorizer(), RadiusNeighborsRegressor(radius=1.5))
""",
    "texts": """
make_pipeline(TfidfVectorizer(), KernelPCA(2, kernel="rbf"))
make_pipeline(TfidfVectorizer(), Nystroem(n_components=8, random_state=0))
make_pipeline(TfidfVectorizer(), OneClassSVM(nu=0.3))
""",
    "counts three": """
make_pipeline(OneHotEncoder(handle_unknown="ignore"), SVC())
make_pipeline(KBinsDiscretizer(3), NuSVC(nu=0.2))
LabelSpreading(kernel=lambda a, b: np.exp(-0.2 * ((a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * np.dot(a, b.T))))
""",
    "table binary": """
BaggingClassifier(make_pipeline(make_column_transformer((OneHotEncoder(handle_unknown="ignore"), [0]), remainder="passthrough"), LogisticRegression()), n_estimators=3, random_state=0)
make_pipeline(ColumnTransformer([("t", OneHotEncoder(handle_unknown="ignore"), lambda X: [0]), ("n", make_pipeline(SimpleImputer(), FunctionTransformer(np.tanh)), slice(1, 3))]), TunedThresholdClassifierCV(LogisticRegression(), cv=2))
""",
}
